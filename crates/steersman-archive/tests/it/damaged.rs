//! Dumps that cannot be opened: one sentence each.

use crate::support::{Dumps, gzip, object, tar};
use std::fs;
use steersman_machinery::Revision;
use steersman_storage::backup::{Encoder, Header};
use steersman_storage::kv::Entry;

const KNOWN: &str = "want a snapshot of etcd, the output of `kubectl get -o yaml` or `-o json`, a must-gather, a Velero backup, a support bundle, the directory of `kubectl cluster-info dump` or a backup of Steersman";

#[track_caller]
fn check(bytes: impl AsRef<[u8]>, want: &str) {
    let dumps = Dumps::new();
    let refusal = dumps.refusal(&dumps.file(bytes));
    assert_eq!(refusal.replace("\"DIR/dump\"", "DUMP").replace(KNOWN, "KNOWN"), want);
}

#[test]
fn files_that_are_nothing_known_are_refused() {
    check("", "DUMP is empty");
    check(b"PK\x03\x04rest", "DUMP is nothing that can be opened: KNOWN");
    check("some words\n", "DUMP has no objects of Kubernetes: KNOWN");
    check(r#"{"a": 1}"#, "DUMP has no objects of Kubernetes: KNOWN");
    check(gzip(b"\x00\x01"), "DUMP is nothing that can be opened: KNOWN");
    check(tar(&[("a.txt", "x")]), "DUMP has no objects of Kubernetes: KNOWN");
    let dumps = Dumps::new();
    assert!(dumps.refusal(&dumps.path("missing")).starts_with("\"DIR/missing\" cannot be read: No such file"));
    assert!(dumps.refusal(std::path::Path::new("/dev/null")).contains("is neither a file nor a directory"));
    let empty = dumps.directory(&[("README", "x")]);
    assert!(dumps.refusal(&empty).starts_with("\"DIR/directory\" has no objects of Kubernetes"));
}

#[test]
fn files_that_end_too_early_are_refused() {
    let pod = object("v1", "Pod", "default", "a", 3).to_string();
    check(
        &pod[..pod.len() - 3],
        &format!(
            "DUMP cannot be read: its JSON is damaged or cut off, EOF while parsing a string at line 1 column {}",
            pod.len() - 3
        ),
    );
    let many: Vec<(String, String)> = (0..500)
        .map(|n| {
            (
                format!("resources/pods/namespaces/default/{n}.json"),
                object("v1", "Pod", "default", &format!("p{n}"), n * 7919).to_string(),
            )
        })
        .collect();
    let many: Vec<(&str, &str)> = many.iter().map(|(name, text)| (&**name, &**text)).collect();
    let (whole, packed) = (tar(&many), gzip(&tar(&many)));
    let dumps = Dumps::new();
    for cut in [&whole[..100_100], &packed[..packed.len() / 2], &packed[..packed.len() - 4]] {
        let refusal = dumps.refusal(&dumps.file(cut));
        assert!(refusal.contains("is damaged or ends too early, after "), "{refusal}");
        assert!(refusal.ends_with("use another copy"), "{refusal}");
    }
    let mut damaged = packed.clone();
    let at = packed.len() / 2;
    damaged[at..at + 40].fill(0xff);
    assert!(dumps.refusal(&dumps.file(damaged)).contains("is damaged or ends too early"));
}

#[test]
fn a_compressed_snapshot_is_to_be_unpacked_first() {
    let mut bolt = vec![0; 4096];
    bolt[16..20].copy_from_slice(&0xED0C_DAED_u32.to_le_bytes());
    check(gzip(&bolt), "DUMP is compressed: unpack it with gunzip first");
    check(
        &bolt,
        "DUMP cannot be read as a snapshot of etcd: it is no database of etcd, or both of its meta pages are damaged; use another one",
    );
}

#[test]
fn a_file_whose_values_are_all_encrypted_is_refused_and_others_are_shown() {
    let backup = |values: &[(&'static str, &'static [u8])]| {
        let mut out = Vec::new();
        let mut encoder = Encoder::begin(&Header::new("embedded", Revision(9), None), &mut out);
        for (key, value) in values {
            let entry = Entry { key: (*key).into(), revision: Revision(1), value: (*value).into() };
            encoder.entry(&entry, &mut out);
        }
        encoder.end(&mut out);
        out
    };
    let secret: (&str, &[u8]) = ("/secrets/default/s", b"k8s:enc:aescbc:v1:key1:\x00\x01\x02");
    check(
        backup(&[secret]),
        "all values in DUMP are encrypted at rest (k8s:enc:aescbc:v1:key1), and their key is not in it: ask its server for the objects, with `kubectl get -A -o yaml` or a backup",
    );
    let dumps = Dumps::new();
    let config = br#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"c","namespace":"d"}}"#;
    let archive = dumps.open(&dumps.file(backup(&[secret, ("/configmaps/d/c", config)]))).unwrap();
    assert_eq!(archive.entries.len(), 1);
    assert_eq!(
        archive.left_out.to_string(),
        "1 of secrets, because they are encrypted at rest (k8s:enc:aescbc:v1:key1)"
    );
}

#[test]
fn a_file_of_a_tree_that_is_damaged_costs_that_file() {
    let dumps = Dumps::new();
    let pod = object("v1", "Pod", "default", "a", 3).to_string();
    let path = dumps.directory(&[("a.json", &pod), ("b.json", "{\"kind\":"), ("c.yaml", "a: [b\n")]);
    let archive = dumps.open(&path).unwrap();
    assert_eq!(archive.entries.len(), 1);
    assert!(
        archive.notes[0].starts_with("2 files cannot be read, such as b.json: its JSON is damaged"),
        "{:?}",
        archive.notes
    );
    fs::remove_file(path.join("a.json")).unwrap();
    assert!(
        dumps.refusal(&path).starts_with("\"DIR/directory/b.json\" cannot be read: its JSON is damaged or cut off")
    );
}
