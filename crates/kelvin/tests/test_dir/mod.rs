//! A directory in which the whole program is run on files, and helpers to judge its output.
//!
//! No test needs all of it.
#![allow(dead_code)]

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use serde_json::Value;
use tempfile::TempDir;

pub const KELVIN: &str = env!("CARGO_BIN_EXE_kelvin");

/// Time limit before anything here counts as hanging.
pub const HANG_TIMEOUT: Duration = Duration::from_secs(60);

/// A directory of its own, on the file system of the build: what lies in memory has no direct I/O and is never uncached.
pub struct TestDir {
    pub directory: TempDir,
    /// Where what is remembered is kept: elsewhere, since tests look at what is in the other one.
    pub cache: TempDir,
}

impl TestDir {
    pub fn new() -> Self {
        let directory = || tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        Self { directory: directory(), cache: directory() }
    }

    pub fn path(&self) -> &Path {
        self.directory.path()
    }

    pub fn command(&self, program: &str, arguments: &[&str]) -> Command {
        let mut command = Command::new(program);
        command.args(arguments).current_dir(self.path()).stdin(Stdio::null());
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        command.env("HOME", self.path()).env("XDG_DATA_HOME", self.path().join("data"));
        for name in ["COLUMNS", "XDG_CONFIG_HOME", "KELVIN_CONFIG", "KELVIN_STORE"] {
            command.env_remove(name);
        }
        command.env("TMPDIR", self.path()).env("XDG_CACHE_HOME", self.cache.path());
        command
    }

    pub fn start(&self, arguments: &[&str]) -> Child {
        self.command(KELVIN, arguments).spawn().unwrap()
    }

    pub fn run(&self, arguments: &[&str]) -> Output {
        wait_for_output(self.start(arguments), arguments)
    }

    /// What it prints, without fault.
    #[track_caller]
    pub fn stdout_of(&self, arguments: &[&str]) -> String {
        let output = self.run(arguments);
        assert_success(&output);
        stdout(&output).to_owned()
    }

    /// Its output as JSON.
    pub fn json(&self, arguments: &[&str]) -> Value {
        let output = self.run(&[arguments, &["--json"]].concat());
        assert_eq!(output.status.code(), Some(0), "{arguments:?}: {}", stderr(&output));
        serde_json::from_slice(&output.stdout).unwrap()
    }

    /// The digest that `kelvin digest` prints of one file.
    pub fn digest(&self, name: &str) -> String {
        let output = self.run(&["digest", name]);
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        stdout(&output).split("  ").next().unwrap().to_owned()
    }

    /// A file of position-dependent bytes, and its digest by the definition.
    pub fn file(&self, name: &str, bytes: usize) -> String {
        let content: Vec<u8> = (0..bytes as u32).map(|i| (i.wrapping_mul(0x9E37_79B9) >> 11) as u8).collect();
        fs::write(self.path().join(name), &content).unwrap();
        xor_digest(&content)
    }

    /// All that is in it, by name, sorted.
    pub fn names(&self) -> Vec<String> {
        names(self.path())
    }
}

/// Waits for the end of a program that must not hang; its pipes are read meanwhile, so it may print more than they hold.
pub fn wait_for_output(child: Child, command: &[&str]) -> Output {
    wait_within(HANG_TIMEOUT, child, command)
}

/// Like `wait_for_output`, of a program that ends by itself within this time on any machine.
pub fn wait_within(timeout: Duration, mut child: Child, command: &[&str]) -> Output {
    let stdout = child.stdout.take().map(read_in_background);
    let stderr = child.stderr.take().map(read_in_background);
    let start = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait().unwrap() {
            break status;
        }
        if start.elapsed() > timeout {
            child.kill().unwrap();
            child.wait().unwrap();
            panic!("{command:?} hangs");
        }
        std::thread::sleep(Duration::from_millis(5));
    };
    let bytes_of = |reader: Option<JoinHandle<Vec<u8>>>| reader.map_or_else(Vec::new, |reader| reader.join().unwrap());
    Output { status, stdout: bytes_of(stdout), stderr: bytes_of(stderr) }
}

fn read_in_background(mut pipe: impl Read + Send + 'static) -> JoinHandle<Vec<u8>> {
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        pipe.read_to_end(&mut bytes).unwrap();
        bytes
    })
}

/// The digest by its definition: the XOR of all little-endian 32-bit words, padded with zeros.
pub fn xor_digest(content: &[u8]) -> String {
    let mut padded = content.to_vec();
    padded.resize(content.len().next_multiple_of(4), 0);
    let words = padded.chunks_exact(4).map(|word| u32::from_le_bytes(word.try_into().unwrap()));
    format!("{:08x}", words.fold(0, |xor, word| xor ^ word))
}

pub fn names(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().file_name());
    let mut names: Vec<String> = entries.map(|name| name.into_string().unwrap()).collect();
    names.sort();
    names
}

pub fn stdout(output: &Output) -> &str {
    std::str::from_utf8(&output.stdout).unwrap()
}

pub fn stderr(output: &Output) -> &str {
    std::str::from_utf8(&output.stderr).unwrap()
}

#[track_caller]
pub fn assert_success(output: &Output) {
    assert_eq!(output.status.code(), Some(0), "{}{}", stderr(output), stdout(output));
}

/// The output of a script in its own mount namespace, in which `$0` is kelvin.
pub fn run_in_namespace(dir: &TestDir, script: &str) -> Output {
    let arguments = ["--mount", "sh", "-c", script, KELVIN];
    wait_for_output(dir.command("unshare", &arguments).spawn().unwrap(), &arguments)
}

/// Asserts that it could not be done, with one line that contains these words.
#[track_caller]
pub fn assert_refused(output: &Output, words: &[&str]) {
    let message = stderr(output);
    assert_eq!(output.status.code(), Some(2), "{message}{}", stdout(output));
    assert!(message.lines().count() == 1 && message.starts_with("kelvin: "), "{message}");
    for word in words {
        assert!(message.contains(word), "no {word:?} in {message}");
    }
}

pub fn signal(child: &Child, name: &str) {
    let status = Command::new("sh").args(["-c", &format!("kill -{name} {}", child.id())]).status().unwrap();
    assert!(status.success());
}

/// Whether a program has a handler of SIGINT, by the mask of caught signals (proc(5)).
pub fn handles_interrupts(child: &Child) -> bool {
    let status = fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap_or_default();
    let mask = status.lines().find_map(|line| u64::from_str_radix(line.strip_prefix("SigCgt:")?.trim(), 16).ok());
    mask.is_some_and(|mask| mask & (1 << 1) != 0)
}

/// Waits until a program is at work on a file: it watches for signals by then, and has it open or mapped.
pub fn wait_until_at_work(child: &Child, file: &Path) {
    let process = PathBuf::from(format!("/proc/{}", child.id()));
    let file = file.canonicalize().unwrap();
    let is_at_work = || {
        let entries = fs::read_dir(process.join("fd")).into_iter().flatten().flatten();
        let is_open = entries.filter_map(|entry| fs::read_link(entry.path()).ok()).any(|path| path == file);
        is_open || fs::read_to_string(process.join("maps")).is_ok_and(|maps| maps.contains(file.to_str().unwrap()))
    };
    assert!(is_met_within(HANG_TIMEOUT, is_at_work), "{} is not at work on {}", child.id(), file.display());
}

/// Whether a condition becomes true in time.
pub fn is_met_within(time: Duration, mut condition: impl FnMut() -> bool) -> bool {
    let start = Instant::now();
    while start.elapsed() < time {
        if condition() {
            return true;
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    condition()
}
