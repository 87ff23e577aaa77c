//! Links the unwinder into the program instead of loading it as a shared object.
//!
//! A fork copies the mappings of its process, unless advised to leave them out, and each shared object has five. The program
//! that measures forks therefore loads no more than a small C program does: the C library (for `libm` see `kelvin_sys`'s
//! feature `mathematics`). A linker script where the linker looks for `libgcc_s` names the static archive instead. Without
//! such an archive, or when cross-compiling, the shared object is used, and forks are slightly slower.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let variable = |name: &str| env::var(name).unwrap_or_default();
    let native = variable("TARGET") == variable("HOST");
    if !native || variable("CARGO_CFG_TARGET_OS") != "linux" || variable("CARGO_CFG_TARGET_ENV") != "gnu" {
        return;
    }
    let Some(archive) = find_archive("libgcc_eh.a") else {
        println!(
            "cargo::warning=cc has no libgcc_eh.a: libgcc_s.so is loaded instead, and forks measure slightly slower"
        );
        return;
    };
    let directory = PathBuf::from(variable("OUT_DIR"));
    let script = format!("INPUT({})\n", archive.display());
    fs::write(directory.join("libgcc_s.so"), script).expect("the build directory can be written");
    println!("cargo::rustc-link-search=native={}", directory.display());
}

/// The path of an archive of the C compiler, which prints the bare name if it has none.
fn find_archive(archive: &str) -> Option<PathBuf> {
    let output = Command::new("cc").arg(format!("-print-file-name={archive}")).output().ok()?;
    let path = PathBuf::from(String::from_utf8(output.stdout).ok()?.trim());
    (path.is_absolute() && Path::exists(&path)).then_some(path)
}
