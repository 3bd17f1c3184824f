//! Regular rules of a kind, as rows: where a field is, and what must hold there.
//!
//! `Kind::validate` and its siblings hold the rows of a kind. A row with [`Check::Rules`] holds those of a nested type; one with
//! [`Check::By`] or [`Check::Change`] calls a function, where a rule is irregular. Rows are checked in their order, which is upstream's:
//! the errors of an answer have an order. Paths are put together for errors and for functions only.
//!
//! The tests in `builtin/tests/rows.rs` follow every row along the schema of its kind, so that a row cannot misspell a field, demand a
//! number of a string, or allow a value that the field does not have.

use crate::builtin::rules::change::Change;
use crate::builtin::rules::field::{Field, is_empty};
use crate::builtin::rules::{IMMUTABLE, NOT_NEGATIVE, PORT, POSITIVE, is_port};
use std::collections::BTreeSet;
#[cfg(test)]
use std::panic::Location;
use std::sync::LazyLock;
use steersman_machinery::Value;
use steersman_machinery::field::{Error, Path};
use steersman_machinery::quantity::Quantity;

/// One rule of a field.
pub struct Rule {
    /// Where the field is, below the value that the rows are about: `spec.ports[].name` in each item of a list, `status.capacity.*` each
    /// value of a map; empty: the value itself.
    pub(in crate::builtin) path: &'static str,
    pub(in crate::builtin) check: Check,
    presence: Presence,
    when: When,
    /// The path in errors, where upstream names another one.
    blamed: Option<&'static str>,
    /// The longest list whose items are checked. A longer one is an error.
    items_max: usize,
    #[cfg(test)]
    pub(in crate::builtin) declared: &'static Location<'static>,
}

/// What must hold for a value. An absent number or quantity passes; an absent text counts as the empty one and an absent list as the
/// empty one, as in a Go struct.
#[derive(Clone, Copy)]
pub enum Check {
    /// Nothing besides what the row says of its presence.
    Any,
    /// The number is not less than the bound; the message follows.
    AtLeast(i64, &'static str),
    /// The number is not greater than the bound; the message follows.
    AtMost(i64, &'static str),
    /// Like [`Check::Within`], with a message of its own.
    Between(i64, i64, &'static str),
    /// A function decides.
    By(fn(&Field<'_>, &mut Vec<Error>)),
    /// A function decides, which looks at the old value too.
    Change(fn(&Change<'_>, &mut Vec<Error>)),
    /// The field must not be given. For rows that say when it is.
    Forbidden(&'static str),
    /// The text has a form; the function returns what is wrong with it.
    Format(fn(&str) -> Vec<String>),
    /// An update does not change the value.
    Immutable,
    /// Like [`Check::Forbidden`], with an error that shows the value.
    Invalid(&'static str),
    /// The list or map has no more items.
    ItemsMax(usize),
    /// The text has no more bytes.
    LengthMax(usize),
    /// The number is zero or greater.
    NotNegative,
    /// The quantity is zero or greater.
    NotNegativeQuantity,
    /// The text is one of these.
    OneOf(&'static [&'static str]),
    /// The number is a port.
    Port,
    /// The number is greater than zero.
    Positive,
    /// Rows hold for the fields of the value.
    Rules(&'static [Rule]),
    /// The text differs from those of the earlier items of a list: the list in the row's path, or else the one whose items the rows are
    /// about.
    Unique,
    /// Like [`Check::Immutable`], with an error that does not show the value.
    Unchanged(&'static str),
    /// The list has nothing beside `*`; otherwise the message follows.
    WildcardAlone(&'static str),
    /// The number is between the bounds, both included.
    Within(i64, i64),
}

/// When a row applies, and whether its field must be there.
#[derive(Clone, Copy)]
enum Presence {
    Any,
    /// The row is about a field that is given.
    IfPresent,
    /// The row is about a field that is given and not empty.
    UnlessEmpty,
    /// The field must be given; this is the message otherwise.
    Present(&'static str),
    /// The field must not be empty; this is the message otherwise.
    Required(&'static str),
    /// A number that is not given is zero.
    Zero,
}

/// The writes that a row is for.
#[derive(Clone, Copy, Eq, PartialEq)]
enum When {
    Always,
    Create,
    Update,
}

/// The value that rows are about: its path, put together when it is asked for.
enum Base<'b> {
    Known(&'b Path),
    /// The value of a row: the base of the row, its path and the items that the path led through.
    Below(&'b Base<'b>, &'static str, Option<&'b Taken<'b>>),
}

/// The last item or key that a path led through, and those before it.
struct Taken<'t> {
    before: Option<&'t Taken<'t>>,
    item: Item<'t>,
}

#[derive(Clone, Copy)]
enum Item<'t> {
    Index(usize),
    Key(&'t str),
}

/// The texts that the rows of a list's items have seen, by row.
type Seen<'v> = Vec<BTreeSet<&'v str>>;

/// Both values of a row.
#[derive(Clone, Copy)]
struct Pair<'v> {
    new: &'v Value,
    old: &'v Value,
}

static ZERO: LazyLock<Value> = LazyLock::new(|| Value::from(0));

/// Checks rows about a value that is written.
pub fn check(rules: &'static [Rule], change: &Change<'_>, errors: &mut Vec<Error>) {
    // The old value of an update is an object at least.
    let when = if change.old.value.is_null() { When::Create } else { When::Update };
    check_when(rules, change, when, errors);
}

/// Checks rows that do not look at an old value.
pub fn check_field(rules: &'static [Rule], field: &Field<'_>, errors: &mut Vec<Error>) {
    let change = Change { new: field.clone(), old: Field { path: field.path.clone(), value: &Value::Null } };
    check_when(rules, &change, When::Create, errors);
}

fn check_when(rules: &'static [Rule], change: &Change<'_>, when: When, errors: &mut Vec<Error>) {
    let pair = Pair { new: change.new.value, old: change.old.value };
    run(rules, &Base::Known(&change.new.path), pair, when, &mut Seen::new(), errors);
}

fn run<'v>(
    rules: &'static [Rule],
    base: &Base<'_>,
    pair: Pair<'v>,
    when: When,
    seen: &mut Seen<'v>,
    errors: &mut Vec<Error>,
) {
    for (number, rule) in rules.iter().enumerate() {
        if rule.when == When::Always || rule.when == when {
            let mut walk = Walk { rule, number, base, when, errors: &mut *errors };
            walk.go(rule.path, pair, None, seen);
        }
    }
}

/// The way of one row to its values.
struct Walk<'w> {
    rule: &'static Rule,
    /// The row's place among the rows.
    number: usize,
    base: &'w Base<'w>,
    when: When,
    errors: &'w mut Vec<Error>,
}

// === impl Rule ===

impl Rule {
    /// A rule of the field at a path.
    #[cfg_attr(test, track_caller)]
    pub const fn new(path: &'static str, check: Check) -> Rule {
        Rule {
            path,
            check,
            presence: Presence::Any,
            when: When::Always,
            blamed: None,
            items_max: usize::MAX,
            #[cfg(test)]
            declared: Location::caller(),
        }
    }

    /// The field must not be empty; the message is empty where upstream has none.
    #[cfg_attr(test, track_caller)]
    pub const fn required(path: &'static str, detail: &'static str) -> Rule {
        Rule { presence: Presence::Required(detail), ..Rule::new(path, Check::Any) }
    }

    /// The field must be given, but may be empty.
    #[cfg_attr(test, track_caller)]
    pub const fn present(path: &'static str, detail: &'static str) -> Rule {
        Rule { presence: Presence::Present(detail), ..Rule::new(path, Check::Any) }
    }

    /// The field must not be empty, and is checked if it is not.
    #[must_use]
    pub const fn and_required(self, detail: &'static str) -> Rule {
        Rule { presence: Presence::Required(detail), ..self }
    }

    /// The field must be given, and is checked if it is.
    #[must_use]
    pub const fn and_present(self, detail: &'static str) -> Rule {
        Rule { presence: Presence::Present(detail), ..self }
    }

    /// Only if the field is given.
    #[must_use]
    pub const fn if_present(self) -> Rule {
        Rule { presence: Presence::IfPresent, ..self }
    }

    /// Only if the field is given and not empty.
    #[must_use]
    pub const fn unless_empty(self) -> Rule {
        Rule { presence: Presence::UnlessEmpty, ..self }
    }

    /// A number that is not given is zero, as in a Go struct.
    #[must_use]
    pub const fn or_zero(self) -> Rule {
        Rule { presence: Presence::Zero, ..self }
    }

    /// Only for new objects.
    #[must_use]
    pub const fn on_create(self) -> Rule {
        Rule { when: When::Create, ..self }
    }

    /// Only for updates.
    #[must_use]
    pub const fn on_update(self) -> Rule {
        Rule { when: When::Update, ..self }
    }

    /// Sets the path that errors name, in the form of the row's own: where it has `[]`, the row's items follow.
    #[must_use]
    pub const fn blaming(self, path: &'static str) -> Rule {
        Rule { blamed: Some(path), ..self }
    }

    /// The list at the end of the path must not have more items; the items of one that has more are not checked.
    #[must_use]
    pub const fn up_to(self, items_max: usize) -> Rule {
        Rule { items_max, ..self }
    }
}

// === impl Walk ===

impl Walk<'_> {
    /// Follows the rest of the path.
    fn go<'v>(&mut self, rest: &'static str, pair: Pair<'v>, taken: Option<&Taken<'_>>, seen: &mut Seen<'v>) {
        if rest.is_empty() {
            return self.check(pair, taken, seen);
        }
        let (segment, rest) = rest.split_once('.').unwrap_or((rest, ""));
        if segment == "*" {
            for (key, new) in pair.new.as_object().into_iter().flatten() {
                let pair = Pair { new, old: pair.old.get(key).unwrap_or(&Value::Null) };
                self.go(rest, pair, Some(&Taken { before: taken, item: Item::Key(key) }), seen);
            }
            return;
        }
        let Some(name) = segment.strip_suffix("[]") else {
            return self.go(rest, pair.field(segment), taken, seen);
        };
        let list = pair.field(name);
        let items = list.new.as_array().map(Vec::as_slice).unwrap_or_default();
        if rest.is_empty() && items.len() > self.rule.items_max {
            let pattern = self.rule.blamed.unwrap_or(self.rule.path);
            let path = self.base.path_below(pattern.strip_suffix("[]").unwrap_or(pattern), taken);
            return self.errors.push(Error::too_many(&path, items.len(), self.rule.items_max));
        }
        // The items of a list have texts of their own, which no other list has seen.
        let mut seen = Seen::new();
        for (index, new) in items.iter().enumerate() {
            let pair = Pair { new, old: list.old.get(index).unwrap_or(&Value::Null) };
            self.go(rest, pair, Some(&Taken { before: taken, item: Item::Index(index) }), &mut seen);
        }
    }

    fn check<'v>(&mut self, mut pair: Pair<'v>, taken: Option<&Taken<'_>>, seen: &mut Seen<'v>) {
        let (base, pattern) = (self.base, self.rule.blamed.unwrap_or(self.rule.path));
        let path = || base.path_below(pattern, taken);
        match self.rule.presence {
            Presence::IfPresent if pair.new.is_null() => return,
            Presence::UnlessEmpty if is_empty(pair.new) => return,
            Presence::Present(detail) if pair.new.is_null() => {
                return self.errors.push(Error::required(&path(), detail));
            }
            Presence::Required(detail) if is_empty(pair.new) => {
                return self.errors.push(Error::required(&path(), detail));
            }
            Presence::Zero if pair.new.is_null() => pair.new = &ZERO,
            _ => {}
        }
        match self.rule.check {
            Check::By(function) => function(&Field { path: path(), value: pair.new }, self.errors),
            Check::Change(function) => {
                let (new, old) = (Field { path: path(), value: pair.new }, Field { path: path(), value: pair.old });
                function(&Change { new, old }, self.errors);
            }
            Check::Immutable if self.when == When::Update && pair.new != pair.old => {
                self.errors.push(Error::invalid(&path(), pair.new.clone(), IMMUTABLE));
            }
            Check::Unchanged(detail) if self.when == When::Update && pair.new != pair.old => {
                self.errors.push(Error::forbidden(&path(), detail));
            }
            Check::Rules(rules) => {
                let mut own = Seen::new();
                let seen = if self.rule.path.contains("[]") { seen } else { &mut own };
                run(rules, &Base::Below(base, pattern, taken), pair, self.when, seen, self.errors);
            }
            Check::Unique => {
                if seen.len() <= self.number {
                    seen.resize_with(self.number + 1, BTreeSet::new);
                }
                let text = pair.new.as_str().unwrap_or_default();
                if !seen[self.number].insert(text) {
                    self.errors.push(Error::duplicate(&path(), text.into()));
                }
            }
            check => check.judge(pair.new, &path, self.errors),
        }
    }
}

// === impl Check ===

impl Check {
    /// Appends the errors of a value. Checks that need more than the value are the row's.
    fn judge(self, value: &Value, path: &dyn Fn() -> Path, errors: &mut Vec<Error>) {
        let text = value.as_str().unwrap_or_default();
        let number = value.as_i64();
        let items = value.as_array().map(Vec::as_slice).unwrap_or_default();
        let n_items = items.len().max(value.as_object().map_or(0, |fields| fields.len()));
        let detail = match self {
            Check::Forbidden(detail) => return errors.push(Error::forbidden(&path(), detail)),
            Check::Format(violations) => {
                let shown = || if value.is_null() { Value::from("") } else { value.clone() };
                let violations = violations(text).into_iter();
                return errors.extend(violations.map(|detail| Error::invalid(&path(), shown(), detail)));
            }
            Check::ItemsMax(most) if n_items > most => return errors.push(Error::too_many(&path(), n_items, most)),
            Check::LengthMax(most) if text.len() > most => return errors.push(Error::too_long(&path(), most)),
            Check::OneOf(words) if !words.contains(&text) => {
                return errors.push(Error::not_supported(&path(), text, words));
            }
            Check::Within(least, most) if number.is_some_and(|number| number < least || most < number) => {
                let detail = format!("must be between {least} and {most}, inclusive");
                return errors.push(Error::invalid(&path(), value.clone(), detail));
            }
            Check::Between(least, most, detail) if number.is_some_and(|number| number < least || most < number) => {
                detail
            }
            Check::AtLeast(least, detail) if number.is_some_and(|number| number < least) => detail,
            Check::AtMost(most, detail) if number.is_some_and(|number| most < number) => detail,
            Check::Invalid(detail) => detail,
            Check::NotNegative if number.is_some_and(|number| number < 0) => NOT_NEGATIVE,
            Check::NotNegativeQuantity if Quantity::parse(text).is_ok_and(Quantity::is_negative) => NOT_NEGATIVE,
            Check::Port if !number.is_some_and(is_port) => PORT,
            Check::Positive if number.is_some_and(|number| number <= 0) => POSITIVE,
            Check::WildcardAlone(detail) if n_items > 1 && items.iter().any(|item| item == "*") => detail,
            _ => return,
        };
        errors.push(Error::invalid(&path(), value.clone(), detail));
    }
}

// === impl Base ===

impl Base<'_> {
    fn path(&self) -> Path {
        match self {
            Base::Known(path) => (*path).clone(),
            Base::Below(base, pattern, taken) => base.path_below(pattern, *taken),
        }
    }

    /// The path of the value that a row has reached.
    fn path_below(&self, pattern: &str, taken: Option<&Taken<'_>>) -> Path {
        let mut items: Vec<Item<'_>> =
            std::iter::successors(taken, |taken| taken.before).map(|taken| taken.item).collect();
        let mut path = self.path();
        for segment in pattern.split('.').filter(|segment| !segment.is_empty()) {
            let name = segment.trim_end_matches("[]");
            if !matches!(name, "" | "*") {
                path = path.child(name);
            }
            if name.len() < segment.len() || name == "*" {
                path = match items.pop() {
                    Some(Item::Index(index)) => path.index(index),
                    Some(Item::Key(key)) => path.key(key),
                    None => path,
                };
            }
        }
        path
    }
}

// === impl Pair ===

impl<'v> Pair<'v> {
    fn field(self, name: &str) -> Pair<'v> {
        if name.is_empty() {
            return self;
        }
        let field = |value: &'v Value| value.get(name).unwrap_or(&Value::Null);
        Pair { new: field(self.new), old: field(self.old) }
    }
}
