//! Dumps that somebody made to do harm.

use crate::support::{Dumps, gzip, keys, object, tar};
use std::fs;
use std::io::Write as _;
use std::os::unix::fs::symlink;
use steersman_archive::{Limits, Options};

fn limited(limits: Limits) -> Options {
    let mut options = Options::default();
    options.limits = limits;
    options
}

#[test]
fn links_of_a_directory_are_not_followed() {
    let dumps = Dumps::new();
    let outside = dumps.path("outside");
    fs::create_dir(&outside).unwrap();
    fs::write(outside.join("secret.json"), object("v1", "Secret", "default", "s", 1).to_string()).unwrap();
    let pod = object("v1", "Pod", "default", "a", 3).to_string();
    let path = dumps.directory(&[("a.json", &pod), ("namespaces/default/pods/a/x/x/logs/previous.log", "")]);
    symlink(&outside, path.join("linked")).unwrap();
    symlink(outside.join("secret.json"), path.join("b.json")).unwrap();
    symlink("/etc/passwd", path.join("namespaces/default/pods/a/x/x/logs/current.log")).unwrap();
    symlink(".", path.join("circle")).unwrap();
    let archive = dumps.open(&path).unwrap();
    assert_eq!(keys(&archive), ["/pods/default/a 3"]);
    assert_eq!(archive.logs.len(), 1);
}

#[test]
fn names_in_a_tar_lead_nowhere() {
    let dumps = Dumps::new();
    let pod = object("v1", "Pod", "default", "a", 3).to_string();
    let mut builder = tar::Builder::new(Vec::new());
    let escaping = "../../x/namespaces/default/pods/a/c/c/logs/current.log";
    for (name, text) in [("../../../tmp/a.json", &*pod), (escaping, "log\n")] {
        let mut header = tar::Header::new_gnu();
        header.as_gnu_mut().unwrap().name[..name.len()].copy_from_slice(name.as_bytes());
        header.set_size(text.len() as u64);
        header.set_cksum();
        builder.append(&header, text.as_bytes()).unwrap();
    }
    let mut link = tar::Header::new_gnu();
    link.set_entry_type(tar::EntryType::Symlink);
    link.set_size(0);
    builder.append_link(&mut link, "b.json", "/etc/passwd").unwrap();
    let archive = dumps.open(&dumps.file(builder.into_inner().unwrap())).unwrap();
    assert_eq!(keys(&archive), ["/pods/default/a 3"]);
    assert_eq!((archive.logs.len(), dumps.path("x").exists()), (1, false));
}

#[test]
fn names_of_objects_stay_within_their_kind() {
    let dumps = Dumps::new();
    let good = object("v1", "Pod", "default", "a", 3);
    let bad = [object("v1", "Pod", "default", "a/../../secrets/x", 4), object("v1", "Pod", "../kube-system", "b", 5)];
    let list = serde_json::json!([good, bad[0], bad[1]]);
    let archive = dumps.open(&dumps.file(list.to_string())).unwrap();
    assert_eq!(keys(&archive), ["/pods/default/a 3"]);
    assert_eq!(archive.left_out.to_string(), "2 of the kind Pod in v1 with names that cannot be");
}

#[test]
fn what_unpacks_to_too_much_is_refused_before_it_is_read() {
    let dumps = Dumps::new();
    // A gigabyte of zeros is a megabyte.
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    let mut header = tar::Header::new_gnu();
    header.set_path("big.bin").unwrap();
    header.set_size(64 << 20);
    header.set_cksum();
    encoder.write_all(header.as_bytes()).unwrap();
    let zeros = vec![0; 1 << 20];
    (0..64).for_each(|_| encoder.write_all(&zeros).unwrap());
    let bomb = dumps.file(encoder.finish().unwrap());
    let options = limited(Limits { unpacked_bytes: 8 << 20, ..Limits::default() });
    assert_eq!(
        dumps.refusal_with(&bomb, &options),
        "\"DIR/dump\" is refused, because it has more than 8388608 bytes after unpacking"
    );
    let text = dumps.file(gzip(&vec![b' '; 1 << 20]));
    let text_bomb = gzip(format!("{{\"kind\":\"{}\"}}", "x".repeat(1 << 20)).as_bytes());
    let options = limited(Limits { file_bytes: 1 << 18, ..Limits::default() });
    assert_eq!(dumps.refusal_with(&text, &options), "\"DIR/dump\" is empty");
    assert_eq!(
        dumps.refusal_with(&dumps.file(text_bomb), &options),
        "\"DIR/dump\" is refused, because it has more than 262144 bytes"
    );
}

#[test]
fn too_many_files_objects_and_logs_are_refused() {
    let dumps = Dumps::new();
    let pod = object("v1", "Pod", "default", "a", 3).to_string();
    let log = "namespaces/d/pods/a/c/c/logs/current.log";
    let tree = dumps.file(tar(&[("a.json", &pod), ("b.json", &pod), (log, "0123456789")]));
    let of = |limits: Limits| dumps.refusal_with(&tree, &limited(limits));
    let most = Limits::default();
    assert!(of(Limits { files: 2, ..most }).ends_with("it has more than 2 files"));
    assert!(of(Limits { objects: 1, ..most }).ends_with("it has more than 1 objects"));
    assert!(of(Limits { object_bytes: 10, ..most }).ends_with("it has more than 10 bytes of objects"));
    assert!(of(Limits { log_bytes: 9, ..most }).ends_with("it has more than 9 bytes of logs"));
    assert!(of(Limits { file_bytes: 20, ..most }).ends_with("it has more than 20 bytes"));
    let directory = dumps.directory(&[("a.json", &pod), ("b.json", &pod)]);
    assert!(
        dumps.refusal_with(&directory, &limited(Limits { files: 1, ..most })).ends_with("it has more than 1 files")
    );
}

#[test]
fn deep_nesting_is_refused() {
    let dumps = Dumps::new();
    let deep = format!(
        "{{\"kind\":\"A\",\"apiVersion\":\"b.c/v1\",\"metadata\":{{\"name\":\"a\"}},\"x\":{}1{}}}",
        "[".repeat(100_000),
        "]".repeat(100_000)
    );
    assert!(dumps.refusal(&dumps.file(deep)).contains("recursion limit exceeded"));
    let deep = format!("kind: A\nx: {}1{}\n", "[".repeat(100_000), "]".repeat(100_000));
    assert!(dumps.refusal(&dumps.file(deep)).contains("its YAML is damaged"));
}

#[test]
fn many_kinds_without_definitions_have_a_bound() {
    let dumps = Dumps::new();
    let objects: Vec<_> = (0..30).map(|n| object("a.io/v1", &format!("Kind{n}"), "", "x", n)).collect();
    let archive = dumps.open_with(
        &dumps.file(serde_json::json!(objects).to_string()),
        &limited(Limits { made_up: 10, ..Limits::default() }),
    );
    let archive = archive.unwrap();
    assert_eq!((archive.made_up.len(), archive.left_out.n_objects()), (10, 20));
}
