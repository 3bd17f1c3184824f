//! The document of the loops, beside the loops.

use steersman_controllers::{Activation, ControlLoop};

#[test]
fn the_document_names_every_loop() {
    let document = include_str!("../../../../docs/control-loops.md");
    for one in ControlLoop::ALL {
        let (row, off) = (format!("| `{}` | `{}` |", one.name, one.upstream_name()), "; where nodes may join |");
        let line = document.lines().find(|line| line.starts_with(&row));
        let line = line.unwrap_or_else(|| panic!("docs/control-loops.md has no row {row}"));
        assert_eq!(line.ends_with(off), one.activation == Activation::WhereNodesJoin, "{line}");
    }
    let n_rows = document.lines().filter(|line| line.starts_with("| `")).count();
    assert_eq!(n_rows, ControlLoop::ALL.len(), "docs/control-loops.md has a row of a loop that is gone");
}
