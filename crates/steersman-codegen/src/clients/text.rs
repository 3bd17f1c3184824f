//! A builder of Rust source, line by line, with indentation.

use crate::docs;

/// The longest line.
const WIDTH: usize = 100;

/// The width up to which rustfmt leaves a list of imports on one line.
const USE_WIDTH: usize = 98;

/// The width up to which rustfmt leaves a chain of calls on one line.
const CHAIN_WIDTH: usize = 60;

#[derive(Default)]
pub(super) struct Text {
    text: String,
    depth: usize,
}

impl Text {
    pub(super) fn line(&mut self, line: &str) {
        self.text.extend(std::iter::repeat_n("    ", self.depth));
        self.text.push_str(line);
        self.text.push('\n');
    }

    pub(super) fn blank(&mut self) {
        self.text.push('\n');
    }

    /// Adds a line after which the next ones are indented further.
    pub(super) fn open(&mut self, line: &str) {
        self.line(line);
        self.depth += 1;
    }

    pub(super) fn close(&mut self, line: &str) {
        self.depth = self.depth.saturating_sub(1);
        self.line(line);
    }

    /// Prints each item with `print`, with an empty line between two items.
    pub(super) fn separated<T>(&mut self, items: impl IntoIterator<Item = T>, mut print: impl FnMut(&mut Text, T)) {
        for (index, item) in items.into_iter().enumerate() {
            if index > 0 {
                self.blank();
            }
            print(self, item);
        }
    }

    /// Adds a signature and its opening brace, on several lines if it is too long for one.
    pub(super) fn signature(&mut self, head: &str, arguments: &[String], tail: &str) {
        let line = format!("{head}({}){tail}", arguments.join(", "));
        if self.depth * 4 + line.len() <= WIDTH {
            self.open(&line);
            return;
        }
        self.open(&format!("{head}("));
        for argument in arguments {
            self.line(&format!("{argument},"));
        }
        self.depth -= 1;
        self.open(&format!("){tail}"));
    }

    /// Adds a statement that is a chain of calls.
    pub(super) fn chain(&mut self, root: &str, links: &[String]) {
        let line = format!("{root}{}", links.concat());
        if line.len() <= CHAIN_WIDTH {
            self.line(&format!("{line};"));
            return;
        }
        self.open(root);
        for (index, link) in links.iter().enumerate() {
            let end = if index + 1 == links.len() { ";" } else { "" };
            self.line(&format!("{link}{end}"));
        }
        self.depth -= 1;
    }

    /// Adds a struct literal with one field per line, as rustfmt formats all but the shortest.
    pub(super) fn literal(&mut self, head: &str, fields: &[&str], tail: &str) {
        self.open(&format!("{head} {{"));
        for field in fields {
            self.line(field);
        }
        self.close(&format!("}}{tail}"));
    }

    /// Adds an import of several names from a module, on several lines if it is too long for one.
    pub(super) fn imports(&mut self, path: &str, names: &[&str]) {
        let line = match names {
            [name] => format!("use {path}::{name};"),
            names => format!("use {path}::{{{}}};", names.join(", ")),
        };
        if line.len() <= USE_WIDTH {
            self.line(&line);
            return;
        }
        self.open(&format!("use {path}::{{"));
        let mut row = String::new();
        for name in names {
            if !row.is_empty() && self.depth * 4 + row.len() + name.len() + 1 > WIDTH {
                self.line(row.trim_end());
                row.clear();
            }
            row.push_str(name);
            row.push_str(", ");
        }
        self.line(row.trim_end());
        self.close("};");
    }

    /// Adds a doc comment on the next item.
    pub(super) fn doc(&mut self, text: &str) {
        self.comment("///", text);
    }

    /// Adds the description from a schema as a doc comment on the next item.
    pub(super) fn description(&mut self, description: &str) {
        for line in docs::lines(description, self.depth * 4) {
            self.line(format!("/// {line}").trim_end());
        }
    }

    /// Adds a doc comment on the file.
    pub(super) fn inner_doc(&mut self, text: &str) {
        self.comment("//!", text);
    }

    fn comment(&mut self, mark: &str, text: &str) {
        let width = WIDTH.saturating_sub(self.depth * 4 + mark.len() + 1);
        for paragraph in text.split('\n') {
            let mut line = String::new();
            for word in paragraph.split_whitespace() {
                if !line.is_empty() && line.len() + 1 + word.len() > width {
                    self.line(&format!("{mark} {line}"));
                    line.clear();
                }
                if !line.is_empty() {
                    line.push(' ');
                }
                line.push_str(word);
            }
            self.line(format!("{mark} {line}").trim_end());
        }
    }

    pub(super) fn finish(self) -> String {
        self.text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(print: impl FnOnce(&mut Text), expected: &str) {
        let mut text = Text::default();
        print(&mut text);
        assert_eq!(text.finish(), expected);
    }

    #[test]
    fn lines_break_where_rustfmt_breaks_them() {
        let links = [".get_or_insert_default()".to_owned(), ".extend(pools)".to_owned()];
        check(|text| text.chain("self.pools", &links), "self.pools.get_or_insert_default().extend(pools);\n");
        check(
            |text| text.chain("self.the_pools_of_addresses", &links),
            "self.the_pools_of_addresses\n    .get_or_insert_default()\n    .extend(pools);\n",
        );
        check(|text| text.literal("Self", &["a,", "..b"], ";"), "Self {\n    a,\n    ..b\n};\n");
        check(|text| text.imports("crate::api", &["A"]), "use crate::api::A;\n");
        check(|text| text.imports("crate::api", &["A", "B"]), "use crate::api::{A, B};\n");
        let long = ["VirtualService"; 7];
        check(
            |text| text.imports("crate::api", &long),
            "use crate::api::{\n    VirtualService, VirtualService, VirtualService, VirtualService, VirtualService, VirtualService,\n    \
             VirtualService,\n};\n",
        );
    }
}
