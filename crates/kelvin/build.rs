//! Tells the program what it is made of, and links the unwinder into it instead of loading it as a shared object.
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
    describe_build();
    link_unwinder();
}

/// A variable that cargo sets, or an empty text.
fn variable(name: &str) -> String {
    env::var(name).unwrap_or_default()
}

/// What `crates/kelvin/src/version.rs` reads.
fn describe_build() {
    let compiler = output(Command::new(variable("RUSTC")).arg("--version")).expect("the compiler states its version");
    // Without the commit and the day of the compiler, its version is two words.
    let compiler = compiler.split(' ').take(2).collect::<Vec<_>>().join(" ");
    println!("cargo::rustc-env=KELVIN_BUILD_COMPILER={compiler}");
    println!("cargo::rustc-env=KELVIN_BUILD_TARGET={}", variable("TARGET"));
    println!("cargo::rustc-env=KELVIN_BUILD_COMMIT={}", commit().unwrap_or_default());
}

/// The commit of the sources: that of `KELVIN_COMMIT`, which a tarball's recipe sets; that of a package from a registry; or that of the
/// checkout. Only release builds ask git: development builds would be made anew with each commit.
fn commit() -> Option<String> {
    println!("cargo::rerun-if-env-changed=KELVIN_COMMIT");
    if let Some(commit) = env::var("KELVIN_COMMIT").ok().filter(|commit| !commit.is_empty()) {
        let is_word = |byte: u8| byte.is_ascii_alphanumeric() || b"_.+-".contains(&byte);
        let is_valid = commit.len() <= 64 && commit.bytes().all(is_word) && !commit.starts_with(['.', '+', '-']);
        assert!(is_valid, "KELVIN_COMMIT must be a commit, such as 0123456789ab, but is {commit}");
        return Some(commit);
    }
    packaged_commit().or_else(|| if variable("PROFILE") == "release" { checkout_commit() } else { None })
}

/// Hexadecimal digits of a commit.
const COMMIT_DIGITS: usize = 12;

/// The commit that `cargo package` has written beside the manifest.
fn packaged_commit() -> Option<String> {
    let text = fs::read_to_string(".cargo_vcs_info.json").ok()?;
    let (_, rest) = text.split_once("\"sha1\": \"")?;
    let commit = rest.get(..COMMIT_DIGITS)?;
    let is_dirty = text.contains("\"dirty\": true");
    Some(format!("{commit}{}", if is_dirty { "-dirty" } else { "" }))
}

/// The commit of the checkout that holds this file, with `-dirty` if a source differs from it.
fn checkout_commit() -> Option<String> {
    let git = |arguments: &[&str]| output(Command::new("git").arg("--no-optional-locks").args(arguments));
    // Sources without a history can lie below a checkout of something else.
    git(&["ls-files", "--error-unmatch", "build.rs"])?;
    let commit = git(&["rev-parse", &format!("--short={COMMIT_DIGITS}"), "HEAD"])?;
    const SOURCES: [&str; 3] = ["../../crates", "../../Cargo.toml", "../../Cargo.lock"];
    let changes = git(&[&["status", "--porcelain", "--untracked-files=no", "--"][..], &SOURCES].concat())?;
    let history = git(&["rev-parse", "--git-path", "logs/HEAD"])?;
    for path in SOURCES.into_iter().chain([history.as_str()]).filter(|path| Path::exists(path.as_ref())) {
        println!("cargo::rerun-if-changed={path}");
    }
    Some(format!("{commit}{}", if changes.is_empty() { "" } else { "-dirty" }))
}

/// What a command prints, if it succeeds.
fn output(command: &mut Command) -> Option<String> {
    let output = command.output().ok().filter(|output| output.status.success())?;
    Some(String::from_utf8(output.stdout).ok()?.trim().to_owned())
}

fn link_unwinder() {
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
    let path = PathBuf::from(output(Command::new("cc").arg(format!("-print-file-name={archive}")))?);
    (path.is_absolute() && Path::exists(&path)).then_some(path)
}
