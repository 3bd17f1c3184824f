//! Rust source, line by line, with the indentation kept.

use crate::docs;

/// The longest line of a comment.
const WIDTH: usize = 100;

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

    /// A line after which the next ones stand further to the right.
    pub(super) fn open(&mut self, line: &str) {
        self.line(line);
        self.depth += 1;
    }

    pub(super) fn close(&mut self, line: &str) {
        self.depth = self.depth.saturating_sub(1);
        self.line(line);
    }

    /// What `print` prints of each item, with an empty line between two.
    pub(super) fn separated<T>(&mut self, items: impl IntoIterator<Item = T>, mut print: impl FnMut(&mut Text, T)) {
        for (index, item) in items.into_iter().enumerate() {
            if index > 0 {
                self.blank();
            }
            print(self, item);
        }
    }

    /// A signature and its opening brace, on several lines if it is too long for one.
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

    /// A comment on what follows.
    pub(super) fn doc(&mut self, text: &str) {
        self.comment("///", text);
    }

    /// What a schema says of what follows.
    pub(super) fn description(&mut self, description: &str) {
        for line in docs::lines(description, self.depth * 4) {
            self.line(format!("/// {line}").trim_end());
        }
    }

    /// A comment on the file.
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
