//! Flags as Go's pflag parses them: `--name=value`, `--name value`, `--switch`, `-v 4`; if one is given more than once,
//! the last value counts, or all if the flag takes several.
//!
//! The flags are listed in a text table, a line each: a name and a type, with a `+` before those that have an effect
//! here. Error messages are upstream's, since scripts search for them.

use crate::args::duration;
use std::collections::BTreeMap;
use std::net::IpAddr;

/// The types of flags with one value.
const SINGLE: [&str; 8] = ["bool", "duration", "float", "int", "ip", "level", "string", "uint"];

/// The flags of a program.
#[derive(Debug)]
pub(crate) struct Flags {
    rows: Vec<Flag>,
}

/// A flag of the program.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Flag {
    pub(crate) name: &'static str,
    kind: &'static str,
    has_meaning: bool,
}

/// The given flags.
#[derive(Debug, Default)]
pub(crate) struct Given {
    values: BTreeMap<&'static str, Vec<String>>,
    /// Given flags that have no effect here.
    pub(crate) passed_over: Vec<&'static str>,
}

/// The reason why the program does not run.
#[derive(Debug, Eq, PartialEq)]
pub(crate) enum Problem {
    Help,
    Version,
    Wrong(String),
}

impl Flags {
    /// Reads a table; `has_meaning` names flags without a `+` that have an effect nevertheless.
    pub(crate) fn read(table: &'static str, has_meaning: impl Fn(&str) -> bool) -> Flags {
        let lines = table.lines().filter(|line| !line.starts_with('#'));
        let rows = lines.filter_map(|line| line.split_once(' ')).map(|(name, kind)| Flag {
            name: name.trim_start_matches('+'),
            kind,
            has_meaning: name.starts_with('+') || has_meaning(name),
        });
        Flags { rows: rows.collect() }
    }

    /// The table in the format of upstream's help.
    pub(crate) fn help(&self) -> String {
        let line = |flag: &Flag| {
            let meaning = if flag.has_meaning { "" } else { " (passed over)" };
            match flag.kind {
                "bool" | "version" => format!("      --{}{meaning}\n", flag.name),
                kind => format!("      --{} {kind}{meaning}\n", flag.name),
            }
        };
        self.rows.iter().map(line).collect()
    }

    /// Parses the arguments after the program's name.
    pub(crate) fn parse(&self, arguments: &[String]) -> Result<Given, Problem> {
        let mut given = Given::default();
        let mut rest = arguments.iter();
        while let Some(argument) = rest.next() {
            let (written, value) = match argument.split_once('=') {
                Some((written, value)) => (written, Some(value.to_owned())),
                None => (argument.as_str(), None),
            };
            let flag = self.flag(written, argument)?;
            if flag.name == "help" {
                return Err(Problem::Help);
            }
            let value = match value {
                Some(value) => value,
                None if matches!(flag.kind, "bool" | "version") => "true".to_owned(),
                None => {
                    rest.next().cloned().ok_or_else(|| Problem::Wrong(format!("flag needs an argument: {written}")))?
                }
            };
            if flag.kind == "version" && value != "false" {
                return Err(Problem::Version);
            }
            check(flag, &value)?;
            let values = given.values.entry(flag.name).or_default();
            if !flag.has_meaning && values.is_empty() {
                given.passed_over.push(flag.name);
            }
            if SINGLE.contains(&flag.kind) {
                values.clear();
            }
            values.push(value);
        }
        Ok(given)
    }

    fn flag(&self, written: &str, argument: &str) -> Result<Flag, Problem> {
        if let Some(name) = written.strip_prefix("--").filter(|name| !name.is_empty()) {
            // Kubernetes accepts both spellings.
            let dashes = name.replace('_', "-");
            let found = self.rows.iter().find(|flag| flag.name == dashes).copied();
            return found.ok_or_else(|| Problem::Wrong(format!("unknown flag: --{name}")));
        }
        match written {
            "-h" => self.flag("--help", argument),
            "-v" => self.flag("--v", argument),
            short if short.len() > 1 && short.starts_with('-') => Err(Problem::Wrong(format!(
                "unknown shorthand flag: {:?} in {argument}",
                short.chars().nth(1).unwrap_or_default()
            ))),
            _ => Err(Problem::Wrong(format!("the program takes flags only, got {argument:?}"))),
        }
    }
}

impl Given {
    /// The last value of a given flag.
    pub(crate) fn one(&self, name: &str) -> Option<&str> {
        self.values.get(name)?.last().map(String::as_str)
    }

    /// All values of a flag.
    pub(crate) fn each(&self, name: &str) -> &[String] {
        self.values.get(name).map(Vec::as_slice).unwrap_or_default()
    }

    /// All values of a flag that takes a list separated by commas.
    pub(crate) fn list(&self, name: &str) -> Vec<String> {
        let parts = self.each(name).iter().flat_map(|value| value.split(','));
        parts.map(str::trim).filter(|part| !part.is_empty()).map(str::to_owned).collect()
    }

    /// The value of a switch; `None` if it was not given.
    pub(crate) fn is_on(&self, name: &str) -> Option<bool> {
        self.one(name).and_then(truth)
    }

    pub(crate) fn number(&self, name: &str) -> Option<i64> {
        self.one(name)?.parse().ok()
    }
}

/// A boolean as Go's `strconv.ParseBool` parses it.
fn truth(text: &str) -> Option<bool> {
    match text {
        "1" | "t" | "T" | "TRUE" | "true" | "True" => Some(true),
        "0" | "f" | "F" | "FALSE" | "false" | "False" => Some(false),
        _ => None,
    }
}

fn check(flag: Flag, value: &str) -> Result<(), Problem> {
    let parse = |function: &str| format!("strconv.{function}: parsing {value:?}: invalid syntax");
    let why = match flag.kind {
        "bool" if truth(value).is_none() => parse("ParseBool"),
        "duration" if duration::any(value).is_err() => format!("time: invalid duration {value:?}"),
        "float" if value.parse::<f64>().is_err() => parse("ParseFloat"),
        "int" | "level" if value.parse::<i64>().is_err() => parse("ParseInt"),
        "ip" if value.parse::<IpAddr>().is_err() => format!("failed to parse IP: {value:?}"),
        "uint" if value.parse::<u64>().is_err() => parse("ParseUint"),
        _ => return Ok(()),
    };
    Err(Problem::Wrong(format!("invalid argument {value:?} for \"--{}\" flag: {why}", flag.name)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &str = "# A table.\n+bind-address ip\nallow-privileged bool\n+anonymous-auth bool\n+secure-port int\n+v level\nmodes strings\nchance float\nwait duration\nhelp bool\nversion version\n";

    fn parse(arguments: &[&str]) -> Result<Given, Problem> {
        let arguments: Vec<String> = arguments.iter().map(|argument| (*argument).to_owned()).collect();
        Flags::read(TABLE, |name| name == "modes").parse(&arguments)
    }

    #[test]
    fn values_stand_behind_a_sign_or_a_blank_and_the_last_counts() {
        let given =
            parse(&["--secure-port=1", "--secure_port", "2", "-v", "4", "--modes=a,b", "--modes", "c"]).unwrap();
        assert_eq!((given.number("secure-port"), given.number("v")), (Some(2), Some(4)));
        assert_eq!(given.each("secure-port"), ["2"]);
        assert_eq!(given.list("modes"), ["a", "b", "c"]);
        assert_eq!(given.is_on("anonymous-auth"), None);
        assert!(given.passed_over.is_empty());
    }

    #[test]
    fn a_switch_takes_no_value_but_behind_a_sign() {
        let given = parse(&["--anonymous-auth", "--allow-privileged=true", "--allow-privileged=f"]).unwrap();
        assert_eq!((given.is_on("anonymous-auth"), given.is_on("allow-privileged")), (Some(true), Some(false)));
        assert_eq!(given.passed_over, ["allow-privileged"]);
    }

    #[track_caller]
    fn check_wrong(arguments: &[&str], want: &str) {
        assert_eq!(parse(arguments).unwrap_err(), Problem::Wrong(want.to_owned()));
    }

    #[test]
    fn what_is_wrong_is_said_in_upstreams_words() {
        check_wrong(&["--no-such=1"], "unknown flag: --no-such");
        check_wrong(&["-x"], "unknown shorthand flag: 'x' in -x");
        check_wrong(&["--secure-port"], "flag needs an argument: --secure-port");
        check_wrong(
            &["--allow-privileged=maybe"],
            "invalid argument \"maybe\" for \"--allow-privileged\" flag: strconv.ParseBool: parsing \"maybe\": invalid syntax",
        );
        check_wrong(
            &["--bind-address=here"],
            "invalid argument \"here\" for \"--bind-address\" flag: failed to parse IP: \"here\"",
        );
        check_wrong(&["--wait=soon"], "invalid argument \"soon\" for \"--wait\" flag: time: invalid duration \"soon\"");
        check_wrong(
            &["--chance=often"],
            "invalid argument \"often\" for \"--chance\" flag: strconv.ParseFloat: parsing \"often\": invalid syntax",
        );
        check_wrong(&["now"], "the program takes flags only, got \"now\"");
        assert_eq!(parse(&["--help"]).unwrap_err(), Problem::Help);
        assert_eq!(parse(&["--version"]).unwrap_err(), Problem::Version);
    }
}
