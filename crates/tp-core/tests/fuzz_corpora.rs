//! Replays the corpora of the fuzz targets, so that plain `cargo test` guards whatever fuzzing once found.
//!
//! Seeds that start with `good-` must be accepted and seeds that start with `bad-` refused; other files come
//! from the fuzzer, and crate and oracle just have to agree on them.

use std::path::Path;

#[path = "../fuzz/targets.rs"]
mod targets;

fn replay(name: &str, target: targets::Target) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus").join(name);
    let files = std::fs::read_dir(&folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display()));
    let (mut good, mut bad) = (0, 0);
    for file in files {
        let path = file.unwrap().path();
        let accepted = target(&std::fs::read(&path).unwrap());
        let name = path.file_name().unwrap().to_str().unwrap();
        assert!(accepted || !name.starts_with("good-"), "{}: refused", path.display());
        assert!(!accepted || !name.starts_with("bad-"), "{}: accepted", path.display());
        good += usize::from(name.starts_with("good-"));
        bad += usize::from(name.starts_with("bad-"));
    }
    assert!(good > 0 && bad > 0, "{}: no seeds", folder.display());
}

#[test]
fn every_corpus_replays() {
    for (name, target) in targets::TARGETS {
        replay(name, target);
    }
}
