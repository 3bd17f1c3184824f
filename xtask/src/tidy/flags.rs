//! Checks that no function that others can call has a `bool` parameter: `start(etcd, true, nodes)` does not say what is true.
//!
//! Others can call a function with a `pub` of any reach, and the functions of a trait that has one. A setter may have a `bool`, since
//! its name says what is set: `docs(true)`. Tests, programs that measure, and the functions of an `impl Trait for` do not count.

use std::collections::BTreeMap;

use syn::{FnArg, GenericArgument, ImplItem, Item, Pat, PathArguments, Signature, TraitItem, Type, Visibility};

use crate::tidy::Finding;

/// Checks the product code among `files`, which are texts by path.
pub(crate) fn check(files: &BTreeMap<String, String>) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, text) in files.iter().filter(|(path, text)| is_product(path) && text.contains("bool")) {
        match syn::parse_file(text) {
            Ok(file) => items(&file.items, path, &mut findings),
            Err(error) => findings.push(Finding::new(path, format!("cannot be parsed: {error}"))),
        }
    }
    findings
}

fn is_product(path: &str) -> bool {
    let is_test = path.split('/').any(|part| matches!(part, "tests" | "tests.rs"));
    let is_source = path.starts_with("xtask/src/") || (path.starts_with("crates/") && path.contains("/src/"));
    is_source && !is_test
}

fn items(items: &[Item], path: &str, findings: &mut Vec<Finding>) {
    for item in items {
        match item {
            Item::Fn(function) if is_visible(&function.vis) && !is_test(&function.attrs) => {
                signature(&function.sig, path, findings);
            }
            Item::Impl(block) if block.trait_.is_none() && !is_test(&block.attrs) => {
                for item in &block.items {
                    if let ImplItem::Fn(method) = item
                        && is_visible(&method.vis)
                        && !is_test(&method.attrs)
                    {
                        signature(&method.sig, path, findings);
                    }
                }
            }
            Item::Trait(item) if is_visible(&item.vis) && !is_test(&item.attrs) => {
                for item in &item.items {
                    if let TraitItem::Fn(method) = item {
                        signature(&method.sig, path, findings);
                    }
                }
            }
            Item::Mod(module) if !is_test(&module.attrs) => {
                let inner = module.content.as_ref().map_or(&[][..], |(_, inner)| inner);
                self::items(inner, path, findings);
            }
            _ => {}
        }
    }
}

fn is_visible(visibility: &Visibility) -> bool {
    !matches!(visibility, Visibility::Inherited)
}

/// Whether `#[cfg(test)]` is among the attributes.
fn is_test(attributes: &[syn::Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        attribute.path().is_ident("cfg") && attribute.parse_args::<syn::Path>().is_ok_and(|path| path.is_ident("test"))
    })
}

fn signature(signature: &Signature, path: &str, findings: &mut Vec<Finding>) {
    let function = signature.ident.to_string();
    for argument in &signature.inputs {
        let FnArg::Typed(parameter) = argument else { continue };
        let Pat::Ident(name) = &*parameter.pat else { continue };
        let name = name.ident.to_string();
        let is_setter =
            signature.receiver().is_some() && signature.inputs.len() == 2 && is_named_after(&function, &name);
        if is_bool(&parameter.ty) && !is_setter {
            let message = format!(
                "`{function}` has the bool parameter `{name}`: take an enum of two words, an Option of the thing that is used, or write two functions"
            );
            findings.push(Finding::new(format!("{path}:{}", signature.ident.span().start().line), message));
        }
    }
}

/// Whether a method says in its name what its parameter sets, as `with_docs(docs)` and `set_frozen(is_frozen)` do.
fn is_named_after(function: &str, parameter: &str) -> bool {
    let parameter = parameter.strip_prefix("is_").or(parameter.strip_prefix("has_")).unwrap_or(parameter);
    function.strip_suffix(parameter).is_some_and(|before| before.is_empty() || before.ends_with('_'))
}

/// Whether a type is `bool` or `Option<bool>`.
fn is_bool(of: &Type) -> bool {
    let Type::Path(path) = of else { return false };
    let Some(last) = path.path.segments.last() else { return false };
    match &last.arguments {
        PathArguments::None => last.ident == "bool",
        PathArguments::AngleBracketed(arguments) if last.ident == "Option" => {
            arguments.args.iter().any(|argument| matches!(argument, GenericArgument::Type(inner) if is_bool(inner)))
        }
        PathArguments::AngleBracketed(_) | PathArguments::Parenthesized(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check_file(path: &str, text: &str, expected: &[&str]) {
        let findings = check(&BTreeMap::from([(path.to_owned(), text.to_owned())]));
        let starts: Vec<String> = findings.iter().map(ToString::to_string).collect();
        let are_equal = starts.iter().zip(expected).all(|(found, start)| found.starts_with(start));
        assert!(findings.len() == expected.len() && are_equal, "{starts:#?} not {expected:#?}");
    }

    const PATH: &str = "crates/a/src/b.rs";

    #[test]
    fn bool_parameter_of_a_visible_function_is_named_with_its_line() {
        let found = "crates/a/src/b.rs:2: `start` has the bool parameter `waits`";
        check_file(PATH, "//! Docs.\npub fn start(etcd: Etcd, waits: bool) {}", &[found]);
        check_file(PATH, "//! Docs.\npub(crate) async fn start<F: Fn(u8) -> u8>(of: F, waits: bool) {}", &[found]);
        check_file(
            PATH,
            "impl A {\npub(super) const fn start(&self, of: &str, mut waits: Option<bool>) {} }",
            &[found],
        );
        check_file(PATH, "pub(crate) trait A {\nfn start(&self, waits: bool); }", &[found]);
        check_file(PATH, "mod inner {\npub(in crate::a) fn start(waits: bool) {} }", &[found]);
        check_file(PATH, "impl A {\npub fn start(&mut self, waits: bool) {} }", &[found]);
    }

    #[test]
    fn setters_are_named_after_what_they_set() {
        let setters = "impl A { pub fn docs(mut self, docs: bool) -> A { self } pub fn with_docs(self, docs: bool) -> A { self } \
            pub fn set_frozen(&self, is_frozen: bool) {} }";
        check_file(PATH, setters, &[]);
        check_file(PATH, "pub fn docs(docs: bool) {}", &["crates/a/src/b.rs:1: `docs` has"]);
        check_file(PATH, "impl A { pub fn docs(&self, docs: bool, n: u8) {} }", &["crates/a/src/b.rs:1: `docs` has"]);
    }

    #[test]
    fn private_functions_impls_of_traits_and_tests_are_free() {
        check_file(PATH, "fn start(waits: bool) {} trait A { fn start(waits: bool); }", &[]);
        check_file(PATH, "impl Visitor for A { fn visit_bool<E>(self, value: bool) -> E {} }", &[]);
        check_file(
            PATH,
            "#[cfg(test)] pub fn start(waits: bool) {} #[cfg(test)] mod t { pub fn s(waits: bool) {} }",
            &[],
        );
        check_file("crates/a/src/b/tests.rs", "pub fn start(waits: bool) {}", &[]);
        check_file("crates/a/tests/it/main.rs", "pub fn start(waits: bool) {}", &[]);
        check_file("benches/load/src/main.rs", "pub fn start(waits: bool) {}", &[]);
    }

    #[test]
    fn returned_flags_and_functions_of_flags_are_no_parameters() {
        check_file(PATH, "pub fn start(of: impl Fn(bool) -> bool, flags: &[bool]) -> bool { true }", &[]);
    }
}
