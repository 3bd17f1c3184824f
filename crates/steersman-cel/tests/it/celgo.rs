//! Random expressions, evaluated here and by Kubernetes' own rules on cel-go. Compared are whether they compile, their
//! estimated cost, their value or error, and their actual cost.
//!
//! Needs the program of `tests/celgo`, whose path is in `STEERSMAN_CELGO`. `STEERSMAN_CEL_SEED` sets the seed;
//! `STEERSMAN_LONG=1` generates twenty times as many expressions.

use crate::properties;
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use serde::Deserialize;
use serde_json::{Value as Json, json};
use std::process::Command;
use steersman_cel::{Activation, DeclType, Environment, Meter, PER_CALL_LIMIT, Value};
use steersman_schema::structural;

const N_CASES: usize = 3_000;
const LONG_FACTOR: usize = 20;
/// The maximum number of differences that are shown.
const SHOWN_MAX: usize = 40;

/// The result of an expression on one side.
#[derive(Debug, Default, Deserialize, PartialEq)]
#[serde(default)]
struct Verdict {
    refused: String,
    estimate: u64,
    value: Option<String>,
    failed: String,
    cost: u64,
    panicked: bool,
}

/// Expressions of the libraries, besides those of [`properties`].
fn library() -> impl Strategy<Value = String> {
    let text = proptest::sample::select(vec![
        "self.s",
        "'a'",
        "''",
        "'a,b,c'",
        "'10.0.0.1'",
        "'10.0.0.0/8'",
        "'::1'",
        "'fe80::/10'",
        "'https://a.example:80/b?c=d&c=e#f'",
        "'1Gi'",
        "'100m'",
        "'1.2.3-a+b'",
        "'v1.2'",
        "'2020-02-29T01:02:03Z'",
        "'1h30m'",
        "'-5'",
        "'1e3'",
        "'true'",
        "'\\u00fc\\U0001f600'",
        "'a.b'",
        "'%d'",
        "'9223372036854775808'",
        "'NaN'",
        "'[a'",
    ]);
    let number = proptest::sample::select(vec![
        "self.i",
        "0",
        "1",
        "-1",
        "2",
        "7",
        "9223372036854775807",
        "(-9223372036854775807 - 1)",
        "self.l[0]",
        "size(self.s)",
    ]);
    let texts = vec![
        "T.split(T)",
        "T.split(T, N)",
        "T.replace(T, T)",
        "T.replace(T, T, N)",
        "T.substring(N)",
        "T.substring(N, N)",
        "T.charAt(N)",
        "T.indexOf(T)",
        "T.indexOf(T, N)",
        "T.lastIndexOf(T)",
        "T.lastIndexOf(T, N)",
        "T.lowerAscii()",
        "T.upperAscii()",
        "T.trim()",
        "T.contains(T)",
        "T.startsWith(T)",
        "T.endsWith(T)",
        "T.matches(T)",
        "T.find(T)",
        "T.findAll(T)",
        "T.findAll(T, N)",
        "[T, T].join(T)",
        "[T, T].join()",
        "T + T",
        "T < T",
        "T == T",
        "size(T)",
        "int(T)",
        "uint(T)",
        "double(T)",
        "bool(T)",
        "bytes(T)",
        "string(bytes(T))",
        "duration(T)",
        "timestamp(T)",
        "isURL(T)",
        "isURL(T) ? url(T).getHost() : T",
        "url(T).getPort()",
        "url(T).getHostname()",
        "url(T).getScheme()",
        "url(T).getEscapedPath()",
        "url(T).getQuery()",
        "isIP(T)",
        "ip(T).family()",
        "ip(T).isLoopback()",
        "ip(T).isGlobalUnicast()",
        "ip.isCanonical(T)",
        "string(ip(T))",
        "isCIDR(T)",
        "cidr(T).prefixLength()",
        "cidr(T).containsIP(T)",
        "cidr(T).containsCIDR(T)",
        "string(cidr(T).masked())",
        "cidr(T).ip().family()",
        "isQuantity(T)",
        "quantity(T).asInteger()",
        "quantity(T).isInteger()",
        "quantity(T).asApproximateFloat()",
        "quantity(T).add(quantity(T)).sign()",
        "quantity(T).compareTo(quantity(T))",
        "quantity(T).isGreaterThan(quantity(T))",
        "quantity(T).sub(N).isLessThan(quantity(T))",
        "isSemver(T)",
        "semver(T).major()",
        "semver(T).isLessThan(semver(T))",
        "semver(T, true).minor()",
        "semver(T).compareTo(semver(T))",
        "format.dns1123Label().validate(T).hasValue()",
        "format.named(T).hasValue()",
        "format.uuid().validate(T).orValue([])",
        "T.format([N])",
        "'%s %d'.format([T, N])",
        "'%x'.format([T])",
        "'%.2f %e'.format([1.5, double(N)])",
        "'%b %o %X'.format([N, N, N])",
        "timestamp(T).getFullYear()",
        "timestamp(T).getHours('+02:00')",
        "duration(T).getMinutes()",
        "timestamp(T) + duration(T)",
        "timestamp(T) - timestamp(T)",
        "duration(T) < duration(T)",
        "T.reverse()",
        "strings.quote(T)",
        "sets.contains([T], [T])",
        "sets.intersects([T, T], [T])",
        "sets.equivalent([N, N], [N])",
        "math.greatest(N, N)",
        "math.abs(N)",
        "math.ceil(1.5)",
        "N + N",
        "N - N",
        "N * N",
        "N / N",
        "N % N",
        "-(N)",
        "uint(N)",
        "string(N)",
        "double(N)",
        "timestamp(N)",
        "N < N",
        "double(N) == N",
        "lists.range(N)",
        "[N, N].sum()",
        "[N, N].min()",
        "[T, T].max()",
        "[N, N].isSorted()",
        "[T, T].indexOf(T)",
        "[T, T].lastIndexOf(T)",
        "[N, N].slice(N, N)",
        "[[N], [N, N]].flatten()",
        "[N, N, N].distinct()",
        "[N, N].sort()",
        "[N, N].reverse()",
        "[T].first().orValue(T)",
        "optional.of(T).value()",
        "optional.ofNonZeroValue(T).hasValue()",
        "optional.none().orValue(T)",
        "{T: N}[T]",
        "{T: N}.?missing",
        "{T: N}[?T].orValue(N)",
        "[?optional.of(N), N]",
        "T in {T: N}",
        "N in [N, N]",
        "cel.bind(v, T, v + v)",
        "[N, N].all(i, v, i < v)",
        "[N, N].exists(i, v, i == v)",
        "{T: N}.transformMap(k, v, v + N)",
        "[N].transformList(i, v, i + v)",
        "{T: N}.transformMapEntry(k, v, {v: k})",
        "self.m.all(k, v, k != v)",
        "self.o.map(e, e.n)",
        "self.o.exists_one(e, e.v > N)",
        "self.l.map(x, x > N, x)",
        "self.l.filter(x, x != N)",
        "type(T) == string",
        "type(N)",
        "dyn(N) == dyn(T)",
        "has(self.s) ? T : T",
        "T.base64()",
        "base64.encode(bytes(T))",
        "base64.decode(T)",
    ];
    (proptest::sample::select(texts), proptest::collection::vec(text, 4), proptest::collection::vec(number, 4))
        .prop_map(|(form, texts, numbers)| {
            let (mut texts, mut numbers) = (texts.into_iter().cycle(), numbers.into_iter().cycle());
            let mut out = String::new();
            let chars: Vec<char> = form.chars().collect();
            for (at, char) in chars.iter().enumerate() {
                let is_alone = !chars.get(at.wrapping_sub(1)).is_some_and(|before| before.is_alphanumeric())
                    && !chars.get(at + 1).is_some_and(|behind| behind.is_alphanumeric());
                match char {
                    'T' if is_alone => out.push_str(texts.next().unwrap_or_default()),
                    'N' if is_alone => out.push_str(numbers.next().unwrap_or_default()),
                    _ => out.push(*char),
                }
            }
            out
        })
}

fn here(expressions: &[String], object: &Json) -> Vec<Verdict> {
    let decl = DeclType::from_schema(&structural::compile(&properties::schema())).expect("an object is seen");
    let environment = Environment::new().declare("self", decl.clone());
    let judge = |text: &String| {
        let program = match environment.compile(text) {
            Ok(program) => program,
            Err(error) => return Verdict { refused: error.to_string(), ..Verdict::default() },
        };
        let mut activation = Activation::new().with("self", Value::declared(object, &decl).expect("as declared"));
        let mut meter = Meter::new(PER_CALL_LIMIT);
        let outcome = program.evaluate(&mut activation, &mut meter);
        Verdict {
            estimate: program.cost().max,
            value: outcome
                .as_ref()
                .ok()
                .and_then(|value| value.to_json(&mut Meter::new(0)).ok()?.as_str().map(str::to_owned)),
            failed: outcome.err().map(|error| error.to_string()).unwrap_or_default(),
            cost: meter.spent(),
            ..Verdict::default()
        }
    };
    expressions.iter().map(judge).collect()
}

fn there(program: &str, expressions: &[String], object: &Json) -> Vec<Verdict> {
    let path = std::env::temp_dir().join(format!("steersman-celgo-{}.json", std::process::id()));
    let work = json!({"Schema": properties::schema(), "Object": object, "Expressions": expressions});
    std::fs::write(&path, work.to_string()).expect("a file for the other program");
    let output = Command::new(program).arg(&path).output().expect("the other program runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    std::fs::remove_file(&path).expect("the file is still there");
    let said = String::from_utf8(output.stdout).expect("it speaks UTF-8");
    said.lines().map(|line| serde_json::from_str(line).expect("a verdict")).collect()
}

/// Whether a difference is known and accepted.
fn is_known_difference(text: &str, ours: &Verdict, theirs: &Verdict) -> bool {
    let same_value = ours.refused.is_empty() && theirs.refused.is_empty() && ours.value == theirs.value;
    let least = ours.estimate.min(theirs.estimate);
    // cel-go itself panics: for example, on a map literal with bytes as a key.
    theirs.panicked
        // Its estimates of comparisons of types and of folds with two variables are less than the evaluation's costs.
        || (same_value
            && ["type(", ", v,", "slice("].iter().any(|part| text.contains(part))
            && (ours.estimate - least <= 30 || theirs.estimate == u64::MAX))
        // An optional selection of a constant is charged once more here.
        // Non-integer numbers as keys of a map; a minus after two exclamation marks, which upstream's parser cancels
        // first; and the estimate of an empty range.
        || ["{self.f:", "!!-", "lists.range(-1)"].iter().any(|part| text.contains(part))
        || (same_value && ["optional.none().n", "[?"].iter().any(|part| text.contains(part)) && ours.cost == theirs.cost + 1)
}

#[test]
fn expressions_have_the_verdicts_values_and_costs_of_cel_go() {
    let Ok(program) = std::env::var("STEERSMAN_CELGO") else {
        eprintln!("STEERSMAN_CELGO names no program: expressions are not compared with cel-go");
        return;
    };
    let seed: u64 = std::env::var("STEERSMAN_CEL_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(7);
    println!("STEERSMAN_CEL_SEED={seed}");
    let factor = if std::env::var_os("STEERSMAN_LONG").is_some() { LONG_FACTOR } else { 1 };
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&seed.to_le_bytes());
    let mut runner = TestRunner::new_with_rng(Config::default(), TestRng::from_seed(RngAlgorithm::ChaCha, &bytes));
    let strategy = prop_oneof![library(), library(), properties::expression()];
    let mut draw = || strategy.new_tree(&mut runner).expect("an expression").current();
    let expressions: Vec<String> = (0..N_CASES * factor).map(|_| format!("'%s'.format([{}])", draw())).collect();
    let object = json!({"i": 3, "f": 1.5, "b": true, "s": "ab\u{fc}", "t": "2020-02-29T01:02:03Z", "d": "90m", "l": [3, 1, 2],
        "m": {"a": "b", "c": "10.0.0.1"}, "o": [{"n": "a", "v": 1}, {"n": "b", "v": -4}]});
    let (ours, theirs) = (here(&expressions, &object), there(&program, &expressions, &object));
    assert_eq!(theirs.len(), expressions.len());
    let mut differences = Vec::new();
    for ((text, ours), theirs) in expressions.iter().zip(&ours).zip(&theirs) {
        // The recordings compare the messages of errors. A failed evaluation costs less here: a call that fails is not
        // charged.
        let facts = |verdict: &Verdict| {
            let has_failed = !verdict.failed.is_empty();
            let cost = if has_failed { 0 } else { verdict.cost };
            (verdict.refused.is_empty(), verdict.value.clone(), has_failed, verdict.estimate, cost)
        };
        if facts(ours) != facts(theirs) && !is_known_difference(text, ours, theirs) {
            differences.push(format!("{text}\n  ours   {ours:?}\n  theirs {theirs:?}"));
        }
    }
    let n_compiled = theirs.iter().filter(|verdict| verdict.refused.is_empty()).count();
    println!("{} expressions, of which {n_compiled} compile", expressions.len());
    assert!(3 * n_compiled > expressions.len(), "too few compile");
    differences.sort_by_key(String::len);
    let shown = differences[..differences.len().min(SHOWN_MAX)].join("\n");
    assert!(differences.is_empty(), "{} differences\n{shown}", differences.len());
}
