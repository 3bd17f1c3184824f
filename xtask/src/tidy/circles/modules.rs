//! The modules of a crate: what each defines, imports and names, and where a path leads.

use std::collections::{BTreeMap, BTreeSet};

use crate::tidy::circles::graph::Edges;
use crate::tidy::circles::tokens::{Token, tokens};

/// Imports that lead to imports, until one gives up: they may lead in a circle.
const IMPORTS_MAX: u32 = 32;
const ITEM_WORDS: [&str; 8] = ["const", "enum", "fn", "macro_rules", "static", "struct", "trait", "type"];

/// A crate, from its root file.
pub(super) struct Crate {
    pub(super) files: Vec<String>,
    /// The root is the first.
    modules: Vec<Module>,
    /// Files of macros that are named from the root wherever they are defined.
    macros: BTreeMap<String, usize>,
}

type Path = Vec<String>;

/// A file, or a `mod name { .. }` in one.
struct Module {
    file: usize,
    parent: usize,
    /// Where the files of its modules are.
    directory: String,
    children: BTreeMap<String, usize>,
    items: BTreeSet<String>,
    /// By the name that they have here.
    imports: BTreeMap<String, Path>,
    globs: Vec<Path>,
    /// Paths in its code, and its imports for its own use.
    paths: Vec<Path>,
}

/// Where a path leads.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Place {
    /// To something that is defined in the file.
    Item(usize),
    Module(usize),
}

/// One name that a `use` brings.
#[derive(Debug, Eq, PartialEq)]
struct Import {
    path: Path,
    /// `None` for a glob.
    name: Option<String>,
}

impl Crate {
    /// Reads the crate whose root is `root` from `texts` by path. Files that are missing have nothing in them.
    pub(super) fn read(root: &str, texts: &BTreeMap<String, String>) -> Crate {
        let mut read = Crate { files: Vec::new(), modules: Vec::new(), macros: BTreeMap::new() };
        let directory = root.rsplit_once('/').map_or("", |(directory, _)| directory);
        let mut waiting = vec![(read.add(0, root, directory), root.to_owned())];
        while let Some((module, path)) = waiting.pop() {
            if let Some(text) = texts.get(&path) {
                let mut reader = Reader { tokens: tokens(text), at: 0, read: &mut read, texts, found: &mut waiting };
                reader.module(module);
            }
        }
        read
    }

    /// What each file needs of the others.
    pub(super) fn edges(&self) -> Edges {
        let mut edges = vec![BTreeSet::new(); self.files.len()];
        for (number, module) in self.modules.iter().enumerate() {
            let needed = module.paths.iter().filter_map(|path| self.file_of(number, path));
            edges[module.file].extend(needed.filter(|file| *file != module.file));
        }
        edges
    }

    /// Whether `file` is `whole`, or a module somewhere below it.
    pub(super) fn is_part_of(&self, file: usize, whole: usize) -> bool {
        let whole = &self.files[whole];
        // Everything is below the root.
        let directory = whole.strip_suffix(".rs").unwrap_or(whole);
        let directory = directory.strip_suffix("/lib").or(directory.strip_suffix("/main")).unwrap_or(directory);
        let part = &self.files[file];
        part == whole || part.strip_prefix(directory).is_some_and(|rest| rest.starts_with('/'))
    }

    fn add(&mut self, parent: usize, file: &str, directory: &str) -> usize {
        self.files.push(file.to_owned());
        self.add_module(parent, self.files.len() - 1, directory.to_owned())
    }

    fn add_module(&mut self, parent: usize, file: usize, directory: String) -> usize {
        self.modules.push(Module {
            file,
            parent,
            directory,
            children: BTreeMap::new(),
            items: BTreeSet::new(),
            imports: BTreeMap::new(),
            globs: Vec::new(),
            paths: Vec::new(),
        });
        self.modules.len() - 1
    }

    /// The file of what a path in `module` names; `None` if that is a module, or not of this crate.
    fn file_of(&self, module: usize, path: &[String]) -> Option<usize> {
        match self.resolve(module, path, 0) {
            Some(Place::Item(file)) => return Some(file),
            Some(Place::Module(_)) => return None,
            None => {}
        }
        if let [root, name] = path
            && root == "crate"
            && let Some(file) = self.macros.get(name)
        {
            return Some(*file);
        }
        // What cannot be found is in the module that is named, made by a macro.
        let n = (1..path.len()).rev().find_map(|n| self.resolve(module, &path[..n], 0))?;
        match n {
            Place::Item(file) => Some(file),
            Place::Module(module) => Some(self.modules[module].file),
        }
    }

    fn resolve(&self, module: usize, path: &[String], n_imports: u32) -> Option<Place> {
        if n_imports > IMPORTS_MAX {
            return None;
        }
        match path.first()?.as_str() {
            "crate" => self.look_up(0, &path[1..], n_imports),
            "self" => self.look_up(module, &path[1..], n_imports),
            "super" => {
                let (mut module, mut rest) = (module, path);
                while let Some(("super", after)) = rest.split_first().map(|(first, after)| (first.as_str(), after)) {
                    (module, rest) = (self.modules[module].parent, after);
                }
                self.look_up(module, rest, n_imports)
            }
            _ => self.look_up(module, path, n_imports),
        }
    }

    /// Follows a path whose first name is one in `module`.
    fn look_up(&self, number: usize, path: &[String], n_imports: u32) -> Option<Place> {
        let module = &self.modules[number];
        let Some((first, rest)) = path.split_first() else { return Some(Place::Module(number)) };
        // A function may be named like a module beside it; a path that ends there means the function.
        let is_item = module.items.contains(first);
        if is_item && rest.is_empty() {
            return Some(Place::Item(module.file));
        }
        if let Some(child) = module.children.get(first) {
            return self.look_up(*child, rest, n_imports);
        }
        if let Some(import) = module.imports.get(first) {
            let path: Path = import.iter().chain(rest).cloned().collect();
            if let found @ Some(_) = self.resolve(number, &path, n_imports + 1) {
                return found;
            }
        }
        if is_item {
            return Some(Place::Item(module.file));
        }
        if n_imports >= IMPORTS_MAX {
            return None;
        }
        module.globs.iter().find_map(|glob| match self.resolve(number, glob, n_imports + 1)? {
            Place::Module(from) if from != number => self.look_up(from, path, n_imports + 1),
            Place::Item(_) | Place::Module(_) => None,
        })
    }
}

/// Reads the tokens of one file.
struct Reader<'t, 'a> {
    tokens: Vec<Token<'t>>,
    at: usize,
    read: &'a mut Crate,
    texts: &'t BTreeMap<String, String>,
    /// Modules in files of their own, which are to be read.
    found: &'a mut Vec<(usize, String)>,
}

impl<'t> Reader<'t, '_> {
    /// Reads a module to the end of the file, or to the brace that closes it.
    fn module(&mut self, module: usize) {
        let mut depth = 0_u32;
        while let Some(token) = self.token(0) {
            match token {
                Token::Punct(b'#') => {
                    if self.attribute() {
                        self.skip_item();
                    }
                    continue;
                }
                Token::Punct(b'{' | b'(' | b'[') => depth += 1,
                Token::Punct(b'}' | b')' | b']') if depth == 0 => return,
                Token::Punct(b'}' | b')' | b']') => depth -= 1,
                Token::Ident("pub") if self.is_punct(1, b'(') => {
                    self.at += 1;
                    self.skip_group();
                    continue;
                }
                Token::Ident("use") if !self.is_punct(1, b'<') => {
                    self.import(module);
                    continue;
                }
                Token::Ident("mod") if self.ident(1).is_some() => {
                    self.child(module);
                    continue;
                }
                Token::Ident(word) => {
                    if depth == 0 && ITEM_WORDS.contains(&word) {
                        self.item(module, word);
                    }
                    self.path(module);
                    continue;
                }
                Token::Literal | Token::Punct(_) => {}
            }
            self.at += 1;
        }
    }

    fn item(&mut self, module: usize, word: &str) {
        let after = if word == "macro_rules" || self.ident(1) == Some("mut") { 2 } else { 1 };
        let Some(name) = self.ident(after).map(str::to_owned) else { return };
        if ITEM_WORDS.contains(&name.as_str()) || matches!(name.as_str(), "unsafe" | "async" | "extern") {
            return;
        }
        if word == "macro_rules" {
            let file = self.read.modules[module].file;
            self.read.macros.insert(name.clone(), file);
        }
        self.read.modules[module].items.insert(name);
    }

    /// `mod name;` or `mod name { .. }`.
    fn child(&mut self, module: usize) {
        let Some(name) = self.ident(1).map(str::to_owned) else { return };
        let (file, directory) = (self.read.modules[module].file, self.read.modules[module].directory.clone());
        let inner = format!("{directory}/{name}");
        let is_inline = self.is_punct(2, b'{');
        self.at += 3;
        let child = if is_inline {
            let child = self.read.add_module(module, file, inner);
            self.module(child);
            self.at += 1;
            child
        } else {
            let beside = format!("{inner}.rs");
            let path = if self.texts.contains_key(&beside) { beside } else { format!("{inner}/mod.rs") };
            let child = self.read.add(module, &path, &inner);
            self.found.push((child, path));
            child
        };
        self.read.modules[module].children.insert(name, child);
    }

    /// `use ..;`
    fn import(&mut self, module: usize) {
        let is_public = match self.at.checked_sub(1).map(|before| self.tokens[before]) {
            Some(Token::Ident("pub")) => true,
            // The end of `pub(crate)`; no other parenthesis stands before a `use`.
            Some(Token::Punct(b')')) => true,
            _ => false,
        };
        self.at += 1;
        let mut imports = Vec::new();
        if !self.is_punct(0, b':') {
            self.tree(&Path::new(), &mut imports);
        }
        while self.token(0).is_some_and(|token| token != Token::Punct(b';')) {
            self.at += 1;
        }
        let module = &mut self.read.modules[module];
        for Import { path, name } in imports {
            match name {
                Some(name) => {
                    if !is_public {
                        module.paths.push(path.clone());
                    }
                    module.imports.insert(name, path);
                }
                None => {
                    if !is_public {
                        // Which names come is not known here; that one is needed is.
                        module.paths.push(path.iter().cloned().chain(["*".to_owned()]).collect());
                    }
                    module.globs.push(path);
                }
            }
        }
    }

    /// One branch of what a `use` names, after `prefix`.
    fn tree(&mut self, prefix: &Path, imports: &mut Vec<Import>) {
        let mut path = prefix.clone();
        loop {
            match self.token(0) {
                Some(Token::Ident(word)) => {
                    self.at += 1;
                    let is_group_itself = word == "self" && !path.is_empty();
                    if !is_group_itself {
                        path.push(word.to_owned());
                    }
                }
                Some(Token::Punct(b'*')) => {
                    self.at += 1;
                    imports.push(Import { path, name: None });
                    return;
                }
                Some(Token::Punct(b'{')) => {
                    self.at += 1;
                    while self.token(0).is_some_and(|token| token != Token::Punct(b'}')) {
                        let before = self.at;
                        self.tree(&path, imports);
                        if self.is_punct(0, b',') || self.at == before {
                            self.at += 1;
                        }
                    }
                    self.at += 1;
                    return;
                }
                _ => return,
            }
            if self.is_punct(0, b':') && self.is_punct(1, b':') {
                self.at += 2;
                continue;
            }
            let mut name = path.last().cloned();
            if self.ident(0) == Some("as") {
                name = self.ident(1).map(str::to_owned);
                self.at += 2;
            }
            imports.extend(name.map(|name| Import { path, name: Some(name) }));
            return;
        }
    }

    /// A path in the code, which begins here unless it is the end of something else.
    fn path(&mut self, module: usize) {
        let before = |n: usize| self.at.checked_sub(n).map(|index| self.tokens[index]);
        let is_field = before(1) == Some(Token::Punct(b'.')) && before(2) != Some(Token::Punct(b'.'));
        let is_rest = before(1) == Some(Token::Punct(b':')) && before(2) == Some(Token::Punct(b':'));
        let mut path = Path::new();
        while let Some(word) = self.ident(0) {
            path.push(word.to_owned());
            self.at += 1;
            if !(self.is_punct(0, b':') && self.is_punct(1, b':') && self.ident(2).is_some()) {
                break;
            }
            self.at += 2;
        }
        if !is_field && !is_rest {
            self.read.modules[module].paths.push(path);
        }
    }

    /// Skips `#[..]` and says whether it keeps what follows for tests.
    fn attribute(&mut self) -> bool {
        self.at += if self.is_punct(1, b'!') { 2 } else { 1 };
        let start = self.at;
        self.skip_group();
        let words: Vec<&str> = self.tokens[start.min(self.at)..self.at]
            .iter()
            .filter_map(|token| match token {
                Token::Ident(word) => Some(*word),
                Token::Literal | Token::Punct(_) => None,
            })
            .collect();
        matches!(words.as_slice(), ["cfg", "test"] | ["cfg", "all", "test", ..] | ["test"])
    }

    /// Skips what an attribute belongs to: an item, a field, an arm or a statement.
    fn skip_item(&mut self) {
        while self.is_punct(0, b'#') {
            self.attribute();
        }
        let start = self.at;
        let (mut ends_with_block, mut ends_with_comma) = (true, true);
        while let Some(token) = self.token(0) {
            match token {
                Token::Ident("fn" | "struct" | "enum" | "trait" | "impl" | "mod") => {
                    ends_with_comma = false;
                    self.at += 1;
                }
                Token::Ident("use" | "const" | "static" | "type" | "let") if self.ident(1) != Some("fn") => {
                    (ends_with_block, ends_with_comma) = (false, false);
                    self.at += 1;
                }
                Token::Punct(b'{') => {
                    self.skip_group();
                    if ends_with_block {
                        return;
                    }
                }
                Token::Punct(b'(' | b'[') => self.skip_group(),
                Token::Punct(b';') => {
                    self.at += 1;
                    return;
                }
                Token::Punct(b',') if ends_with_comma && !self.is_generic(start) => {
                    self.at += 1;
                    return;
                }
                Token::Punct(b'}' | b')' | b']') => return,
                Token::Ident(_) | Token::Literal | Token::Punct(_) => self.at += 1,
            }
        }
    }

    /// Whether more angles were opened than closed since `start`: a comma there parts parameters.
    fn is_generic(&self, start: usize) -> bool {
        let count = |sign| self.tokens[start..self.at].iter().filter(|token| **token == Token::Punct(sign)).count();
        count(b'<') > count(b'>')
    }

    /// Skips a bracket with all that is in it.
    fn skip_group(&mut self) {
        let mut depth = 0_u32;
        while let Some(token) = self.token(0) {
            self.at += 1;
            match token {
                Token::Punct(b'{' | b'(' | b'[') => depth += 1,
                Token::Punct(b'}' | b')' | b']') => depth = depth.saturating_sub(1),
                Token::Ident(_) | Token::Literal | Token::Punct(_) => {}
            }
            if depth == 0 {
                return;
            }
        }
    }

    fn token(&self, ahead: usize) -> Option<Token<'t>> {
        self.tokens.get(self.at + ahead).copied()
    }

    fn ident(&self, ahead: usize) -> Option<&'t str> {
        match self.token(ahead) {
            Some(Token::Ident(word)) => Some(word),
            _ => None,
        }
    }

    fn is_punct(&self, ahead: usize, sign: u8) -> bool {
        self.token(ahead) == Some(Token::Punct(sign))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks which files need which, of a crate of files under `src/`; the first is the root.
    #[track_caller]
    fn check(files: &[(&str, &str)], expected: &[&str]) {
        let texts = files.iter().map(|(path, text)| (format!("src/{path}"), (*text).to_owned())).collect();
        let read = Crate::read(&format!("src/{}", files[0].0), &texts);
        let name = |file: usize| read.files[file].strip_prefix("src/").unwrap().strip_suffix(".rs").unwrap().to_owned();
        let mut edges = Vec::new();
        for (file, needed) in read.edges().iter().enumerate() {
            edges.extend(needed.iter().map(|other| format!("{} -> {}", name(file), name(*other))));
        }
        edges.sort();
        assert_eq!(edges, expected);
    }

    const A: (&str, &str) = ("a.rs", "pub struct A; pub fn make() {} pub enum E { V }");
    const BELOW: (&str, &str) = ("b/below.rs", "pub fn low() {}");

    #[test]
    fn imports_and_paths_lead_to_files() {
        check(&[("lib.rs", "mod a; mod b;"), A, ("b.rs", "use crate::a::{A, E as F};")], &["b -> a"]);
        check(&[("lib.rs", "mod a; mod b;"), A, ("b.rs", "fn b() { crate::a::make() }")], &["b -> a"]);
        check(&[("lib.rs", "mod a; mod b;"), A, ("b.rs", "use crate::a; fn b() -> a::E { a::E::V }")], &["b -> a"]);
        check(&[("lib.rs", "mod a; mod b;"), A, ("b.rs", "use super::a::*;")], &["b -> a"]);
        check(
            &[("lib.rs", "mod a; mod b;"), A, ("b.rs", "use crate::{self as top, a as x}; fn b(a: x::A) {}")],
            &["b -> a"],
        );
        check(&[("main.rs", "mod a; use crate::a::A;"), A], &["main -> a"]);
    }

    #[test]
    fn naming_or_declaring_a_module_is_not_needing_it() {
        check(&[("lib.rs", "mod a; mod b;"), A, ("b.rs", "use crate::a;")], &[]);
        check(&[("lib.rs", "pub mod a;"), A], &[]);
        check(&[("lib.rs", "mod a; fn f() { a::make() }"), A], &["lib -> a"]);
        check(&[("lib.rs", "mod a; struct S { pub(in crate::a) a: u8 } fn f(s: S) { s.a.make() }"), A], &[]);
    }

    #[test]
    fn modules_below_are_files_of_their_own() {
        let files = [("lib.rs", "mod a; mod b;"), ("a.rs", "use crate::b::below::low;"), ("b.rs", "mod below;"), BELOW];
        check(&files, &["a -> b/below"]);
        let files = [("lib.rs", "mod b;"), ("b.rs", "mod below; fn f() { below::low() }"), BELOW];
        check(&files, &["b -> b/below"]);
        let files = [("lib.rs", "mod b;"), ("b.rs", "mod below; pub fn high() {}"), ("b/below.rs", "use super::high;")];
        check(&files, &["b/below -> b"]);
    }

    #[test]
    fn reexports_are_followed_to_the_definition() {
        let user = ("a.rs", "use crate::b::low; fn a() { low() }");
        let files = [("lib.rs", "mod a; mod b;"), user, ("b.rs", "mod below; pub(crate) use self::below::low;"), BELOW];
        check(&files, &["a -> b/below"]);
        // One that uses what it hands on needs it.
        let hands_on = ("b.rs", "mod below; pub use self::below::low; fn f() { low() }");
        check(&[("lib.rs", "mod a; mod b;"), user, hands_on, BELOW], &["a -> b/below", "b -> b/below"]);
        let glob = ("b.rs", "mod below; pub use self::below::*;");
        check(&[("lib.rs", "mod a; mod b;"), user, glob, BELOW], &["a -> b/below"]);
        let top = [("lib.rs", "mod a; mod b; pub use crate::a::A;"), A, ("b.rs", "use crate::A;")];
        check(&top, &["b -> a"]);
    }

    #[test]
    fn tests_comments_and_strings_do_not_count() {
        let b = "// crate::a::A\n/// [crate::a::A]\nconst B: &str = \"crate::a::A\";
            #[cfg(test)] mod tests { use crate::a::A; }
            #[cfg(test)] use crate::a::{A, E};
            struct S { #[cfg(test)] a: Map<u8, crate::a::A>, b: u8 }
            #[cfg(test)] fn u<X, Y>(x: X) where X: Copy, Y: Copy { crate::a::make() }
            #[test] fn t() { crate::a::make() }";
        check(&[("lib.rs", "mod a; mod b;"), A, ("b.rs", b)], &[]);
        let used = format!("{b} fn f() {{ crate::a::make() }}");
        check(&[("lib.rs", "mod a; mod b;"), A, ("b.rs", &used)], &["b -> a"]);
    }

    #[test]
    fn what_a_macro_makes_is_in_the_module_that_is_named() {
        check(&[("lib.rs", "mod a; mod b;"), ("a.rs", "made!(Thing);"), ("b.rs", "use crate::a::Thing;")], &["b -> a"]);
        let defines = ("a.rs", "#[macro_export] macro_rules! told { () => {} }");
        check(&[("lib.rs", "mod a; mod b;"), defines, ("b.rs", "crate::told!();")], &["b -> a"]);
    }

    #[test]
    fn function_beside_a_module_of_its_name() {
        let b = ("b.rs", "mod below; pub fn below() {}");
        check(&[("lib.rs", "mod a; mod b;"), ("a.rs", "use crate::b::below;"), b, BELOW], &["a -> b"]);
        check(&[("lib.rs", "mod a; mod b;"), ("a.rs", "use crate::b::below::low;"), b, BELOW], &["a -> b/below"]);
    }

    #[test]
    fn modules_in_a_file_are_of_that_file() {
        let lib = "mod a; mod inner { use crate::a::A; pub fn f() {} mod deep { use super::super::inner::f; } }";
        check(&[("lib.rs", lib), A], &["lib -> a"]);
    }
}
