//! The table of targets. Each has a row here and a file below `targets/`.

use crate::Target;

macro_rules! targets {
    ($($name:ident)*) => {
        $(pub mod $name;)*

        /// All targets by name.
        pub const ALL: &[Target] = &[$(Target { name: stringify!($name), run: $name::run }),*];
    };
}

targets! {
    audit_policy
    backup
    builtin_kinds
    cel
    claims
    codegen
    config_files
    definitions
    denials
    discovery
    dump
    etcd_snapshot
    fields_v1
    format
    fragments
    json_builtin
    json_custom
    json_patch
    json_path
    keys
    managed
    merge_patch
    names
    object
    pattern
    projection
    protobuf
    quantity
    request
    reviews
    schedules
    selectors
    signing_requests
    store_entry
    store_file
    stored_values
    strategic
    structural
    times
    tokens
    webhook_answers
    yaml
}
