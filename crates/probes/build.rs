//! Packs the files of `machines/`: as they are, they would be a quarter of a megabyte of each program.

use std::path::{Path, PathBuf};
use std::{env, fs};

/// The strongest level of the compressor.
const LEVEL: u8 = 10;

fn main() {
    println!("cargo::rerun-if-changed=machines");
    let entries = fs::read_dir("machines").expect("the directory of machines can be read");
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.expect("its entries can be read").path()).collect();
    files.retain(|file| file.extension().is_some_and(|extension| extension == "json"));
    files.sort();
    let texts: Vec<String> = files.iter().map(|file| fs::read_to_string(file).expect("a file is UTF-8")).collect();
    // No text has a NUL.
    let packed = miniz_oxide::deflate::compress_to_vec(texts.join("\0").as_bytes(), LEVEL);
    let directory = env::var_os("OUT_DIR").expect("cargo sets it");
    fs::write(Path::new(&directory).join("machines.deflate"), packed).expect("the build directory can be written");
}
