//! Checks code in the documentation that is run elsewhere: the code after `<!-- from FILE -->` must be in that file, so
//! that readers copy working code.

use crate::tidy::Finding;

const BEGIN: &str = "<!-- from ";
const END: &str = " -->";
const FENCE: &str = "```";

/// Compares the code of a Markdown file with the files that it names, which `read` returns.
pub(super) fn check(file: &str, text: &str, read: impl Fn(&str) -> Option<String>) -> Vec<Finding> {
    let lines: Vec<&str> = text.lines().collect();
    let mut findings = Vec::new();
    for (at, line) in lines.iter().enumerate() {
        let Some(source) = line.strip_prefix(BEGIN).and_then(|rest| rest.strip_suffix(END)) else { continue };
        let place = format!("{file}:{}", at + 1);
        let mut rest = lines.iter().skip(at + 1);
        if !rest.next().is_some_and(|line| line.starts_with(FENCE)) {
            findings.push(Finding::new(place, "no code stands behind it: put the fence in the next line"));
            continue;
        }
        let code: Vec<&str> = rest.take_while(|line| !line.starts_with(FENCE)).copied().collect();
        match read(source) {
            None => findings.push(Finding::new(place, format!("there is no file {source}"))),
            Some(run) if contains(&run, &code) => {}
            Some(_) => {
                findings.push(Finding::new(place, format!("the code differs from {source}, which is what is run")));
            }
        }
    }
    findings
}

/// Whether the lines occur consecutively in the text, all of them with the same additional indentation.
fn contains(text: &str, code: &[&str]) -> bool {
    let lines: Vec<&str> = text.lines().collect();
    let Some((first, rest)) = code.split_first() else { return false };
    (0..lines.len()).any(|at| {
        let Some(indent) = lines[at].strip_suffix(first) else { return false };
        indent.trim().is_empty()
            && rest.iter().enumerate().all(|(offset, wanted)| {
                let found = lines.get(at + 1 + offset);
                found.is_some_and(|line| line.strip_prefix(indent).unwrap_or(line.trim_start()) == *wanted)
            })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const RUN: &str = "class A {\n  one();\n\n    two();\n  three();\n}\n";

    #[track_caller]
    fn check_text(text: &str, want: &[&str]) {
        let read = |path: &str| (path == "A.java").then(|| RUN.to_owned());
        let found: Vec<String> = check("a.md", text, read).iter().map(ToString::to_string).collect();
        assert_eq!(found, want);
    }

    #[test]
    fn code_is_found_wherever_it_is_indented() {
        check_text("<!-- from A.java -->\n```java\none();\n\n  two();\nthree();\n```\n", &[]);
        check_text("```java\nother();\n```\n", &[]);
    }

    #[test]
    fn code_that_differs_is_told() {
        let differs = ["a.md:1: the code differs from A.java, which is what is run"];
        check_text("<!-- from A.java -->\n```java\none();\ntwo();\n```\n", &differs);
        check_text("<!-- from A.java -->\n```java\n```\n", &differs);
        check_text("<!-- from B.java -->\n```java\none();\n```\n", &["a.md:1: there is no file B.java"]);
        check_text(
            "<!-- from A.java -->\n\none();\n",
            &["a.md:1: no code stands behind it: put the fence in the next line"],
        );
    }
}
