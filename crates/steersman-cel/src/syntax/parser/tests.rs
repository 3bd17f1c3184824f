//! Tests of parsed trees, and of errors.

use crate::syntax::ast::{Ast, Expr, Id};
use crate::syntax::parser::{DEPTH_MAX, parse};

/// The tree in a form for comparison: calls as `(name target args)`.
fn shape(ast: &Ast, id: Id) -> String {
    let join = |ids: &[Id]| ids.iter().map(|id| shape(ast, *id)).collect::<Vec<_>>().join(" ");
    match ast.expr(id) {
        Expr::Call { function, target: None, args } => format!("({function} {})", join(args)),
        Expr::Call { function, target: Some(target), args } => {
            format!("({function} @{} {})", shape(ast, *target), join(args))
        }
        Expr::Fold(fold) => {
            let var2 = fold.var2.as_deref().map(|var2| format!(",{var2}")).unwrap_or_default();
            let filter = fold.filter.map(|filter| format!(" if {}", shape(ast, filter))).unwrap_or_default();
            let (range, body) = (shape(ast, fold.range), shape(ast, fold.body));
            format!("({:?} {}{var2} {range}{filter} {body})", fold.kind, fold.var)
        }
        Expr::Ident(name) => name.to_string(),
        Expr::List(items) => format!("[{}]", join(&items.iter().map(|item| item.value).collect::<Vec<_>>())),
        Expr::Literal(literal) => format!("{literal:?}"),
        Expr::Map(entries) => {
            let entries: Vec<_> =
                entries.iter().map(|entry| format!("{}:{}", shape(ast, entry.key), shape(ast, entry.value))).collect();
            format!("{{{}}}", entries.join(" "))
        }
        Expr::Bind { name, value, body } => {
            format!("(bind {name} {} {})", shape(ast, *value), shape(ast, *body))
        }
        Expr::OptMap { target, name, body, flat } => {
            format!("(optMap {flat} {name} {} {})", shape(ast, *target), shape(ast, *body))
        }
        Expr::Select { operand, field, test } => {
            format!("{}{}.{field}", if *test { "has " } else { "" }, shape(ast, *operand))
        }
        Expr::Struct { name, fields } => {
            let fields: Vec<_> =
                fields.iter().map(|field| format!("{}:{}", field.name, shape(ast, field.value))).collect();
            format!("{name}{{{}}}", fields.join(" "))
        }
    }
}

#[track_caller]
fn check(text: &str, wanted: &str) {
    match parse(text) {
        Ok(ast) => assert_eq!(shape(&ast, ast.root), wanted, "{text}"),
        Err(issue) => panic!("{text}: {issue:?}"),
    }
}

#[track_caller]
fn refused(text: &str, message: &str) {
    match parse(text) {
        Ok(ast) => panic!("{text} is read as {}", shape(&ast, ast.root)),
        Err(issue) => assert!(issue.message.contains(message), "{text}: {issue:?}"),
    }
}

#[test]
fn operators_bind_as_the_language_says() {
    check("a + b * c - d", "(_-_ (_+_ a (_*_ b c)) d)");
    check("a == b in c", "(@in (_==_ a b) c)");
    check("!a.b[0] && -c < 1", "(_&&_ (!_ (_[_] a.b Int(0))) (_<_ (-_ c) Int(1)))");
    check("a ? b : c ? d : e", "(_?_:_ a b (_?_:_ c d e))");
    check("a || b && c", "(_||_ a (_&&_ b c))");
    check("!!a", "a");
    check("--a", "a");
}

#[test]
fn chains_of_and_are_balanced() {
    check("a && b && c && d", "(_&&_ (_&&_ a b) (_&&_ c d))");
}

#[test]
fn the_sign_of_a_number_is_part_of_it() {
    check("-9223372036854775808", "Int(-9223372036854775808)");
    check("a -1", "(_-_ a Int(1))");
    check("-1.5e3", "Double(-1500.0)");
    check("0x1Fu", "Uint(31)");
    refused("9223372036854775808", "invalid int literal");
    refused("18446744073709551616u", "invalid uint literal");
}

#[test]
fn texts_are_unescaped_unless_raw() {
    check(r"'a\x41\u00e9\101\n'", r#"String("aAéA\n")"#);
    check(r"r'a\n'", r#"String("a\\n")"#);
    check(r"b'\xff\n'", "Bytes([255, 10])");
    check("'''a'\n'b'''", r#"String("a'\n'b")"#);
    refused(r"'\q'", "unable to unescape");
    refused("'a", "does not end");
}

#[test]
fn macros_are_recognised_by_name_and_arguments() {
    check("a.all(x, x > 0)", "(All x a (_>_ x Int(0)))");
    check("a.filter(x, x)", "(List x a if x x)");
    check("a.transformMap(k, v, v > 1, v)", "(Map k,v a if (_>_ v Int(1)) v)");
    check("has(a.b.c)", "has a.b.c");
    check(
        "a.?b[?'c'].optMap(x, x + 1)",
        "(optMap false x (_[?_] (_?._ a String(\"b\")) String(\"c\")) (_+_ x Int(1)))",
    );
    check("[1].existsOne(x, x == 1)", "(existsOne @[Int(1)] x (_==_ x Int(1)))");
    refused("has(a)", "invalid argument to has() macro");
    refused("a.all(b.c, true)", "simple name");
}

#[test]
fn lists_maps_and_objects_may_end_with_a_comma() {
    check("[1, 2,]", "[Int(1) Int(2)]");
    check("{'a': 1, ?'b': c,}", "{String(\"a\"):Int(1) String(\"b\"):c}");
    check("Object.spec{a: 1}.b", "Object.spec{a:Int(1)}.b");
}

#[test]
fn what_is_no_expression_is_refused_where_it_goes_wrong() {
    const OPERAND: &str = "'-', '!', 'true', 'false', 'null', NUM_FLOAT, NUM_INT, NUM_UINT, STRING, BYTES, IDENTIFIER}";
    refused("self ==", &format!("mismatched input '<EOF>' expecting {{'[', '{{', '(', '.', {OPERAND}"));
    refused("self == && a", "extraneous input '&&' expecting {'[', '{', '(', '.', '-',");
    refused("f(,", &format!("mismatched input ',' expecting {{'[', '{{', '(', ')', '.', {OPERAND}"));
    refused("for", "reserved identifier: for");
    refused("a b", "extraneous input 'b' expecting <EOF>");
    refused("a b c", "mismatched input 'b' expecting <EOF>");
    refused("(a", "missing ')' at '<EOF>'");
    refused("f(g(a", "mismatched input '<EOF>' expecting ')'");
    refused("[1, 2", "mismatched input '<EOF>' expecting {']', ','}");
    refused("f('x' 'y')", "extraneous input ''y'' expecting ')'");
    refused("self. == 1", "no viable alternative at input '. =='");
    refused("a = b", "token recognition error at: '= '");
    refused("a & b", "token recognition error at: '& '");
    refused("[1].all(1, true)", "argument must be a simple name");
    refused("[1].map(a.b, true)", "argument is not an identifier");
    refused("{}.exists(k, k, true)", "duplicate variable name: k");
    refused("[1].all(__result__, true)", "iteration variable overwrites accumulator variable");
    assert_eq!(parse("a +\n + b").map(|_| ()).unwrap_err().position, 5);
}

#[test]
fn nesting_is_limited_wherever_it_comes_from() {
    for (open, close) in [("(", ")"), ("[", "]"), ("a[", "]"), ("f(", ")"), ("-(", ")"), ("{1:", "}"), ("a ? b : ", "")]
    {
        let text = |depth: usize| format!("{}a{}", open.repeat(depth), close.repeat(depth));
        assert!(parse(&text(usize::from(DEPTH_MAX) / 2 - 2)).is_ok(), "{open}");
        refused(&text(100_000 / (open.len() + close.len()) - 1), "recursion limit");
    }
    for link in ["+a", ".a", "[a]", "==a", ".f()"] {
        refused(&format!("a{}", link.repeat(99_000 / link.len())), "recursion limit");
    }
    assert!(parse(&format!("a{}", "&&a".repeat(30_000))).is_ok());
    refused(&"a".repeat(100_001), "exceeds limit");
}
