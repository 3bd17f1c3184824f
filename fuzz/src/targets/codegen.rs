//! Definitions as manifests, and the types, clients and manifests generated from them: the output is Rust.

use steersman_codegen::{clients, crd, manifest, types};

pub fn run(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    if let Ok(objects) = crd::objects("input.yaml", text) {
        for object in objects {
            let _ = manifest::object(&object);
        }
    }
    let Ok(definitions) = crd::read("input.yaml", text) else { return };
    let options = clients::Options {
        module: "client".to_owned(),
        types: "crate::apis::{group}::{version}".to_owned(),
        command: "fuzz".to_owned(),
    };
    let generated = [types::generate(&definitions, &types::Options::default()).ok(), clients::generate(&definitions, &options).ok()];
    for (path, text) in generated.iter().flatten().flat_map(|files| files.iter()) {
        if let Err(error) = syn::parse_file(text) {
            panic!("{} is no Rust: {error}\n{text}", path.display());
        }
    }
}
