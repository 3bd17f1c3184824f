//! Tests of the values of expressions, by library.

use serde_json::{Value as Json, json};
use std::sync::Arc;
use steersman_cel::{
    Activation, Authorizer, Decision, DeclType, Environment, Meter, PER_CALL_LIMIT, Question, Target, Value,
};

fn environment() -> Environment {
    Environment::new().declare("object", DeclType::dynamic()).with_object_types()
}

fn object() -> Json {
    json!({"a": {"b": [1, 2, 3]}, "s": "text", "n": null, "list": ["x", "y"], "f": 1.5, "map": {"k": "v", "l": "w"}})
}

#[track_caller]
fn run(text: &str) -> Result<Json, String> {
    let object = object();
    let environment = environment();
    let program = environment.compile(text).unwrap_or_else(|error| panic!("{text}: {error}"));
    let mut activation = Activation::new().with("object", Value::json(&object));
    let value =
        program.evaluate(&mut activation, &mut Meter::new(PER_CALL_LIMIT)).map_err(|error| error.to_string())?;
    value.to_json(&mut Meter::new(0)).map_err(|error| error.to_string())
}

#[track_caller]
fn check(text: &str, wanted: Json) {
    assert_eq!(run(text), Ok(wanted), "{text}");
}

#[track_caller]
fn fails(text: &str, wanted: &str) {
    assert_eq!(run(text), Err(wanted.to_owned()), "{text}");
}

#[track_caller]
fn refused(text: &str, wanted: &str) {
    match environment().compile(text) {
        Ok(_) => panic!("{text} compiles"),
        Err(error) => assert!(error.to_string().contains(wanted), "{text}: {error}"),
    }
}

#[test]
fn what_cel_go_prints_counts_and_reads_is_the_same_here() {
    check("string(1000000.0)", json!("1e+06"));
    check("'%s'.format([double(9223372036854775807)])", json!("9.223372036854776e+18"));
    check("string(123456.5)", json!("123456.5"));
    check("lists.range(-1)", json!([]));
    check("quantity('9223372036854775808').isInteger()", json!(false));
    check("quantity('9223372036854775807').isInteger()", json!(true));
    check("url('https://a.example/b?c=d&c=e#f').getQuery()", json!({"c": ["d", "e"]}));
    check("has({0: 3}.n)", json!(false));
}

#[test]
fn arithmetic_overflows_into_errors() {
    check("7 / -2", json!(-3));
    check("7 % -2", json!(1));
    check("2u * 3u", json!(6));
    fails("9223372036854775807 + 1", "integer overflow");
    fails("-9223372036854775808 / -1", "integer overflow");
    fails("0u - 1u", "unsigned integer overflow");
    fails("1 / 0", "division by zero");
    fails("1 % 0", "modulus by zero");
    check("1 < 1.5 && 2u > 1 && 1 <= 1u", json!(true));
    check("dyn(1) == 1.0 && dyn(1u) == 1 && dyn(9007199254740993) == 9007199254740992.0", json!(true));
    check("0.0 / 0.0 == 0.0 / 0.0", json!(false));
}

#[test]
fn logic_takes_whichever_side_decides() {
    check("1 / 0 == 1 || true", json!(true));
    check("false && 1 / 0 == 1", json!(false));
    check("1 / 0 == 1 && false", json!(false));
    fails("1 / 0 == 1 || false", "division by zero");
    check("[1, 0].exists(x, 1 / x == 1)", json!(true));
    fails("[0, 2].exists(x, 1 / x == 1)", "division by zero");
    check("[0, 2].all(x, 1 / x == 1)", json!(false));
    check("true ? 1 : 1 / 0", json!(1));
}

#[test]
fn fields_and_items_that_are_absent_are_errors() {
    fails("object.missing", "no such key: missing");
    fails("object.a.b[3]", "index out of bounds: 3");
    fails("object.a.b[-1]", "index out of bounds: -1");
    fails("{'a': 1}['b']", "no such key: b");
    fails("object.s.x", "no such key: x");
    check("has(object.a.b) && !has(object.missing) && has(object.n)", json!(true));
    check("object.n == null", json!(true));
    fails("object.s + 1", "no such overload");
    fails("object.a + 1", "no such overload: _+_");
    fails("object.a.b.c", "unsupported index type 'string' in list");
    check("has(object.s.x) || object.s.?x.hasValue()", json!(false));
}

#[test]
fn macros_go_through_lists_and_maps() {
    check("[1, 2, 3].filter(x, x > 1).map(x, x * 2)", json!([4, 6]));
    check("[1, 2, 3].map(x, x > 1, x * 2)", json!([4, 6]));
    check("object.map.all(k, k in ['k', 'l'])", json!(true));
    check("[1, 2, 2].exists_one(x, x == 2)", json!(false));
    check("[1, 2].all(i, v, i < v)", json!(true));
    check("{'a': 1}.exists(k, v, k == 'a' && v == 1)", json!(true));
    check("[5, 6].existsOne(i, v, v - i == 5 && i == 0)", json!(true));
    check("[5, 6].transformList(i, v, i * v)", json!([0, 6]));
    check("[5, 6].transformList(i, v, v > 5, i)", json!([1]));
    check("{'a': 1, 'b': 2}.transformMap(k, v, v > 1, v + 1)", json!({"b": 3}));
    check("{'a': 'b'}.transformMapEntry(k, v, {v: k})", json!({"b": "a"}));
    fails("['x', 'x'].transformMapEntry(i, v, {v: i})", "insert failed: key x already exists");
    check("[3, 1, 2].sortBy(x, -x)", json!([3, 2, 1]));
    check("[[1, 2], [3]].map(x, x.map(y, y + size(x)))", json!([[3, 4], [4]]));
    check("[1].map(x, [2].map(x, x))", json!([[2]]));
}

#[test]
fn optionals_may_be_absent() {
    check("object.?missing.orValue('none')", json!("none"));
    check("object.?a.b[?7].orValue(7)", json!(7));
    check("object.?a.?b[?1].value()", json!(2));
    check("object.?missing.or(object.?s).value()", json!("text"));
    check("optional.of(3).optMap(x, x + 1).value()", json!(4));
    check("optional.none().optMap(x, x + 1).hasValue()", json!(false));
    check("object.?s.optFlatMap(x, optional.of(x + '!')).value()", json!("text!"));
    check("[?object.?missing, ?object.?s]", json!(["text"]));
    check("{?'a': object.?missing, ?'b': object.?s}", json!({"b": "text"}));
    check("optional.ofNonZeroValue(0).hasValue()", json!(false));
    check("[optional.of(1), optional.none()].unwrapOpt()", json!([1]));
    check("['a', 'b'].first().value() + ['a', 'b'].last().value()", json!("ab"));
    fails("optional.none().value()", "optional.none() dereference");
}

#[test]
fn lists_have_functions() {
    check("[1, 2, 3].sum() + [4, 5].max() + [4, 5].min()", json!(15));
    check("[1, 2, 2].isSorted() && !['b', 'a'].isSorted()", json!(true));
    check("[1, 2, 1].indexOf(1) == 0 && [1, 2, 1].lastIndexOf(1) == 2", json!(true));
    fails("[].map(x, 1).max()", "max called on empty list");
    check("[1, 2, 3, 4].slice(1, 3)", json!([2, 3]));
    fails("[1].slice(0, 2)", "cannot slice(0, 2), list is length 1");
    check("[[1], [2, 3]].flatten()", json!([1, 2, 3]));
    check("[dyn([1]), dyn([[2]])].flatten(2)", json!([1, 2]));
    check("[3, 1, 2].sort()", json!([1, 2, 3]));
    check("[1, 2, 1].distinct() == [1, 2] && lists.range(3) == [0, 1, 2] && [1, 2].reverse() == [2, 1]", json!(true));
    check("['a', 'b'].join('-') + ['c'].join()", json!("a-bc"));
    check("sets.contains([1, 2], [2]) && !sets.contains([1], [2])", json!(true));
    check(
        "sets.equivalent([1, 2, 2], [2, 1]) && sets.intersects([1], [1, 2]) && !sets.intersects([1], [2])",
        json!(true),
    );
}

#[test]
fn sets_and_keyed_lists_are_compared_and_added_as_what_they_are() {
    let schema = json!({"type": "object", "properties": {
        "set": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}},
        "other": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}},
        "rows": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"],
            "items": {"type": "object", "properties": {"k": {"type": "string"}, "v": {"type": "integer"}}}}}});
    let decl = DeclType::from_schema(&steersman_schema::structural::compile(&schema)).expect("an object is seen");
    let object = json!({"set": ["a", "b"], "other": ["b", "a"], "rows": [{"k": "x", "v": 1}, {"k": "y", "v": 2}]});
    let environment = Environment::new().declare("self", decl.clone());
    let value = |text: &str| {
        let program = environment.compile(text).unwrap_or_else(|error| panic!("{text}: {error}"));
        let mut activation = Activation::new().with("self", Value::declared(&object, &decl).expect("as declared"));
        let value = program.evaluate(&mut activation, &mut Meter::new(PER_CALL_LIMIT)).expect("it has a value");
        value.to_json(&mut Meter::new(0)).expect("it has a form in JSON")
    };
    assert_eq!(value("self.set == self.other"), json!(true));
    assert_eq!(value("self.set + ['b', 'c']"), json!(["a", "b", "c"]));
    assert_eq!(value("self.rows + self.rows"), json!([{"k": "x", "v": 1}, {"k": "y", "v": 2}]));
}

#[test]
fn format_prints_as_upstream_does() {
    check("'%f'.format([1234567.5])", json!("1,234,567.500000"));
    check("'%.0f|%s|%x'.format([2.5, [1.5, 'a', null], -255])", json!("2|[1.500000, \"a\", null]|-ff"));
    fails(
        "'%d'.format([dyn('a')])",
        "error during formatting: decimal clause can only be used on integers, was given string",
    );
    fails("'%s'.format(object.map.map(k, k).filter(k, false))", "index 0 out of range");
    check("'%e'.format([0.00012])", json!("1.200000×10⁻⁰⁴"));
    check("'%e|%.0e'.format([0.0 / 0.0, 1.0 / 0.0])", json!("   NaN|∞"));
}

#[test]
fn templates_that_are_written_out_are_checked() {
    refused("'%d'.format(['a'])", "1:14: error during formatting: decimal clause can only be used on integers");
    refused("'%s'.format([])", "1:12: index 0 out of range");
    refused("'%s'.format([1, 2])", "too many arguments supplied to string.format (expected 1, got 2)");
    refused("'%y'.format([1])", "could not parse formatting clause: unrecognized formatting clause \"y\"");
    refused("'%.2'.format([1])", "could not find end of precision specifier");
    refused("'%'.format([1])", "unexpected end of string");
    refused("'%s'.format([[ip('1.1.1.1')]])", "1:17: error during formatting: string clause can only be used on");
    check("'%d%% %s'.format([1, [[1, 2, [3.0, 4]]][0]])", json!("1% [1, 2, [3.000000, 4]]"));
}

#[test]
fn constants_are_made_before_anything_is_evaluated() {
    for (text, fault) in [
        ("int('11l') > 0 || true", "type conversion error from 'string' to 'int'"),
        ("object.s.find(')') == ''", "error parsing regexp: unexpected ): `)`"),
    ] {
        let error = environment().compile(text).unwrap_err();
        assert!(error.is_of_instantiation());
        assert_eq!(error.to_string(), fault);
    }
    let cost = |text: &str| {
        let program = environment().compile(text).unwrap();
        let object = object();
        let mut meter = Meter::new(PER_CALL_LIMIT);
        let value = program.evaluate(&mut Activation::new().with("object", Value::json(&object)), &mut meter).unwrap();
        assert_eq!(value.as_bool(), Some(true), "{text}");
        meter.spent()
    };
    assert_eq!(cost("object.s in [dyn('text'), object.s]"), 2 + 2 + 10 + 2);
    assert_eq!(cost("'a' in ['a', 'b'] && int('5') == 5"), 1);
    assert_eq!(cost("{'a': 1}.a == 1"), 3);
}

#[test]
fn what_is_written_out_must_be_of_one_type_but_within_format() {
    refused("[1, 'a'] == []", "expected type 'int' but found 'string'");
    refused("{'a': 1, 'b': 'c'} == {}", "expected type 'int' but found 'string'");
    check("'%s'.format([[1, 'a']])", json!("[1, \"a\"]"));
    refused("duration('1x') > duration('1s')", "invalid duration argument");
    refused("timestamp('yesterday') < timestamp(0)", "invalid timestamp argument");
    refused("'a'.matches('[')", "invalid matches argument");
}

#[test]
fn types_are_checked() {
    refused("1 == 1.0", "found no matching overload for '_==_' applied to '(int, double)'");
    refused("true ? 'x' : null", "found no matching overload for '_?_:_' applied to '(bool, string, null)'");
    refused("[1].all(x, x)", "1:12: expected type 'bool' but found 'int'");
    refused("[1].filter(x, x)", "found no matching overload for '_?_:_' applied to '(int, list(int), list(int))'");
    refused("1 && true", "1:1: expected type 'bool' but found 'int'");
    refused(".nobody.x", "1:2: undeclared reference to '.nobody' (in container '')");
    let outside = Environment::new().compile("jsonpatch.escapeKey('a')").map(|_| ()).unwrap_err();
    assert!(outside.to_string().contains("undeclared reference to 'jsonpatch'"), "it is a function of mutations");
    refused("1.all(x, true)", "expression of type 'int' cannot be range of a comprehension");
    refused("'a'.all(x, true)", "expression of type 'string' cannot be range of a comprehension");
    refused("nobody.x", "undeclared reference to 'nobody' (in container '')");
    refused("size(1)", "found no matching overload for 'size' applied to '(int)'");
    refused("Nothing{a: 1}", "undeclared reference to 'Nothing'");
    check(
        "type(1) == int && type('') == string && type({}) == map && type(optional.none()) == optional_type",
        json!(true),
    );
    check("[] + [1] == [1] && {} == {}", json!(true));
    assert_eq!(environment().compile("[[]][0]").expect("it is right").output().to_string(), "list(dyn)");
    assert_eq!(environment().compile("{'a': [1]}.map(k, 1u)").expect("it is right").output().to_string(), "list(uint)");
}

#[test]
fn faults_are_marked_below_their_line() {
    let error = environment().compile("true &&\n\t'ä' > 1").map(|_| ()).unwrap_err();
    assert_eq!(
        error.to_string(),
        "ERROR: <input>:2:6: found no matching overload for '_>_' applied to '(string, int)'\n |  'ä' > 1\n | ..．..^"
    );
}

#[test]
fn mutations_write_objects_whose_names_are_their_places() {
    check(
        "Object{spec: Object.spec{replicas: 2, list: [Object.spec.list{name: 'a'}]}}",
        json!({"spec": {"replicas": 2, "list": [{"name": "a"}]}}),
    );
    check(
        "[JSONPatch{op: 'add', path: '/a/' + jsonpatch.escapeKey('x/~y'), value: 1}]",
        json!([{"op": "add", "path": "/a/x~1~0y", "value": 1}]),
    );
    refused("JSONPatch{op: 1}", "expected type of field 'op' is 'string' but provided type is 'int'");
    refused("JSONPatch{what: 1}", "undefined field 'what'");
    let program = environment().compile("Object{spec: Object.status{}}").expect("names are checked later");
    let value = program.evaluate(&mut Activation::new(), &mut Meter::new(PER_CALL_LIMIT)).expect("it has a value");
    let error = value.check_names(&mut Meter::new(0)).unwrap_err().to_string();
    assert_eq!(
        error,
        "unexpected type name \"Object.status\", expected \"Object.spec\", which matches field name path from root Object type"
    );
}

#[test]
fn composed_expressions_are_evaluated_when_asked_for_and_once() {
    let base = environment();
    let first = base.compile("object.list.map(x, x + '!')").expect("it is right");
    let bad = base.compile("object.missing").expect("it is right");
    let types = [("first", first.output().clone()), ("bad", bad.output().clone())];
    let later = base.clone().with_composed(types.iter().map(|(name, of)| (*name, of)));
    let composed: Vec<(Arc<str>, _)> = vec![("first".into(), first), ("bad".into(), bad)];
    let object = object();
    let run = |text: &str| {
        let program = later.compile(text).unwrap_or_else(|error| panic!("{text}: {error}"));
        let mut activation = Activation::new().with("object", Value::json(&object)).with_composed(&composed);
        let mut meter = Meter::new(PER_CALL_LIMIT);
        let value = program.evaluate(&mut activation, &mut meter);
        (value.and_then(|value| value.to_json(&mut Meter::new(0))).map_err(|error| error.to_string()), meter.spent())
    };
    let (value, once) = run("variables.first[0]");
    assert_eq!(value, Ok(json!("x!")));
    let (value, twice) = run("variables.first[0] + variables.first[1]");
    assert_eq!(value, Ok(json!("x!y!")));
    // The second use only costs reading the value.
    assert_eq!(twice - once, 4);
    let failed = "composited variable \"bad\" fails to evaluate: no such key: missing".to_owned();
    assert_eq!(run("variables.bad").0, Err(failed));
    assert!(later.compile("variables.nothing").is_err());
}

struct Only;

impl Authorizer for Only {
    fn decide(&self, question: &Question<'_>) -> Decision {
        let allowed = match &question.target {
            Target::Path(path) => *path == "/healthz",
            Target::Resource(resource) => {
                resource.group == "apps" && resource.namespace == "n" && question.service_account.is_none()
            }
        };
        let reason = if allowed { String::new() } else { format!("no {}", question.verb) };
        Decision { allowed, reason, error: None }
    }
}

#[test]
fn the_authorizer_is_asked_what_the_expression_says() {
    let environment = Environment::new().with_authorizer();
    let run = |text: &str| {
        let program = environment.compile(text).unwrap_or_else(|error| panic!("{text}: {error}"));
        let resource =
            steersman_cel::Resource { group: "apps".to_owned(), namespace: "n".to_owned(), ..Default::default() };
        let mut activation = Activation::new()
            .with("authorizer", Value::authorizer(&Only))
            .with("authorizer.requestResource", Value::request_resource(&Only, resource));
        let value = program.evaluate(&mut activation, &mut Meter::new(PER_CALL_LIMIT));
        value.and_then(|value| value.to_json(&mut Meter::new(0))).map_err(|error| error.to_string())
    };
    let group = "authorizer.group('apps').resource('deployments')";
    assert_eq!(run(&format!("{group}.namespace('n').name('x').check('get').allowed()")), Ok(json!(true)));
    assert_eq!(run(&format!("{group}.check('get').reason()")), Ok(json!("no get")));
    assert_eq!(run("authorizer.path('/healthz').check('get').allowed()"), Ok(json!(true)));
    assert_eq!(run("authorizer.requestResource.check('fly').allowed()"), Ok(json!(true)));
    let account = "authorizer.serviceAccount('n', 'x').group('apps').resource('y').namespace('n').check('get')";
    assert_eq!(run(&format!("{account}.allowed()")), Ok(json!(false)));
    assert_eq!(run(&format!("{account}.errored()")), Ok(json!(false)));
    assert_eq!(
        run("authorizer.group('').resource('').check('get').allowed()"),
        Err("resource must not be empty".to_owned())
    );
    assert_eq!(
        run("authorizer.serviceAccount('N', 'x').path('/').check('get').allowed()"),
        Err("Invalid service account namespace".to_owned())
    );
}

#[test]
fn a_bound_value_has_a_name_where_the_environment_has_the_macro() {
    let program =
        environment().with_bind().compile("cel.bind(b, object.a.b, b[0] + cel.bind(b, 5, b) + b[2])").unwrap();
    let object = object();
    let mut activation = Activation::new().with("object", Value::json(&object));
    let value = program.evaluate(&mut activation, &mut Meter::new(PER_CALL_LIMIT)).unwrap();
    assert_eq!(value.to_json(&mut Meter::new(0)).unwrap(), json!(9));
    refused("cel.bind(b, object, b.s)", "undeclared reference to 'cel'");
    let error = environment().with_bind().compile("cel.bind(b.c, object, true)").unwrap_err();
    assert!(error.to_string().contains("cel.bind() variable names must be simple identifiers"));
}
