//! Makes JSON of the files of `machines/` and `references/`, which people write as TOML: kelvin reads JSON in any case, and a reader of TOML for
//! these types would be a seventh of a megabyte of each program. The files of `machines/` are packed as well; as they are, they would be half a
//! megabyte.

use std::path::{Path, PathBuf};
use std::{env, fs};

/// The strongest level of the compressor.
const LEVEL: u8 = 10;

fn main() {
    let output = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets it"));
    let texts: Vec<String> = toml_files("machines").iter().map(|file| json(file)).collect();
    // No JSON has a NUL.
    let packed = miniz_oxide::deflate::compress_to_vec(texts.join("\0").as_bytes(), LEVEL);
    write(&output.join("machines.deflate"), &packed);
    for file in toml_files("references") {
        let name = file.file_stem().expect("a file has a name");
        write(&output.join(name).with_extension("json"), json(&file).as_bytes());
    }
}

/// The files of a directory, by name.
fn toml_files(directory: &str) -> Vec<PathBuf> {
    println!("cargo::rerun-if-changed={directory}");
    let entries = fs::read_dir(directory).expect("the directory can be read");
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.expect("its entries can be read").path()).collect();
    files.retain(|file| file.extension().is_some_and(|extension| extension == "toml"));
    files.sort();
    files
}

/// A file's value.
fn json(file: &Path) -> String {
    let text = fs::read_to_string(file).expect("a file is UTF-8");
    let value: toml::Value = toml::from_str(&text).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
    serde_json::to_string(&value).expect("TOML has nothing that JSON has not")
}

fn write(file: &Path, content: &[u8]) {
    fs::write(file, content).expect("the build directory can be written");
}
