//! `kelvin digest`: the digest of files as fast as the machine can read them, and checking them against a list.

mod tuning_cache;

use std::cell::RefCell;
use std::ffi::OsString;
use std::io::{self, BufRead, BufReader, ErrorKind, Read, Write};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use kelvin_file::fast_digest::{self, DataSource, DigestOptions, DigestResult, ReadSetting};
use kelvin_file::{Access, Digest, Target};
use kelvin_report::units;
use serde::Serialize;

use crate::answer::AnswerOutlet;
use crate::cli::DigestArgs;
use crate::cli_error::{CliError, CmdResult, Context};
use crate::output::{self, eprint_line};
use crate::progress::StatusLine;
use tuning_cache::{TuningCache, TuningKey};

/// The name of standard input.
const STANDARD_INPUT: &str = "-";
/// Bytes of standard input that are read at a time.
const STDIN_BLOCK: usize = 256 << 10;

/// `kelvin digest`.
pub fn digest(args: &DigestArgs) -> CmdResult {
    let mut output = DigestOutput::new(AnswerOutlet::find(&args.answer)?, args.check);
    kelvin_sys::stop_signals::install_handlers().context("cannot watch for signals")?;
    let allowed_cpus = kelvin_sys::cpu::affinity().context("cannot read which CPUs may be used")?;
    let cpus = allowed_cpus.len() as u32;
    // What earlier digests found, unless a new search is asked for; none where it can be neither read nor kept.
    let path = TuningCache::path_from_environment(|name| std::env::var_os(name));
    let cache =
        path.and_then(|path| if args.rebuild_cache { Ok(TuningCache::empty(path)) } else { TuningCache::read(path) });
    let cache = cache
        .map_err(|fault| notice!("searching for the fastest way to read these files, without remembering it: {fault}"));
    let threads = args.threads.unwrap_or(cpus);
    let reader = DigestReader { cpus, threads, verbose: args.verbose, tuning_cache: RefCell::new(cache.ok()) };
    let standard_input = [PathBuf::from(STANDARD_INPUT)];
    let files = if args.files.is_empty() { &standard_input[..] } else { &args.files };
    let result = if args.check {
        check_lists(&reader, files, (args.quiet, &mut output))
    } else {
        print_digests(&reader, files, &mut output)
    };
    let result = result.and_then(|is_success| output.finish().map(|()| is_success));
    // The digests are right all the same: no failure.
    if let Some(Err(fault)) = reader.tuning_cache.borrow().as_ref().map(TuningCache::save) {
        notice!("cannot remember the fastest way to read these files: {fault}");
    }
    result
}

/// Prints the digest of each file. One that cannot be read is reported, and the others are still read.
fn print_digests(reader: &DigestReader, files: &[PathBuf], output: &mut DigestOutput) -> CmdResult {
    let mut is_success = true;
    for file in files {
        match reader.digest(file) {
            Ok(digest) => {
                let line = [&digest_line(digest, file)[..], b"\n"].concat();
                output.add(FileDigest::of(file, Some(digest.to_string()), None), line)?;
            }
            Err(fault) if reader.is_interrupted() => return Err(fault),
            Err(fault) => {
                fault.report();
                output.add(FileDigest::of(file, None, Some(fault.to_string())), Vec::new())?;
                is_success = false;
            }
        }
    }
    Ok(is_success)
}

/// What came of a file, as JSON.
#[derive(Serialize)]
struct FileDigest {
    file: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    digest: Option<String>,
    /// Of a check that did not succeed, or a file that could not be read: why.
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
}

impl FileDigest {
    fn of(file: &Path, digest: Option<String>, error: Option<String>) -> Self {
        Self { file: file.display().to_string(), digest, error }
    }
}

/// Where digests go: line by line to standard output, or all at the end.
struct DigestOutput {
    outlet: AnswerOutlet,
    files: Vec<FileDigest>,
    lines: Vec<u8>,
    /// Whether lines are for people alone: not a list, which holds names as they are.
    is_for_people: bool,
}

impl DigestOutput {
    fn new(outlet: AnswerOutlet, is_check: bool) -> Self {
        Self { outlet, files: Vec::new(), lines: Vec::new(), is_for_people: is_check || output::is_terminal() }
    }

    /// Adds what came of a file: a line, or none.
    fn add(&mut self, file: FileDigest, line: Vec<u8>) -> Result<(), CliError> {
        if !self.outlet.is_streamed() {
            self.files.push(file);
            self.lines.extend(line);
            return Ok(());
        }
        let write = |out: &mut dyn Write| out.write_all(&line);
        if self.is_for_people { output::print(write) } else { output::print_raw(write) }
    }

    fn finish(self) -> Result<(), CliError> {
        if self.outlet.is_streamed() {
            return Ok(());
        }
        self.outlet.write(&self.files, |out| out.write_all(&self.lines))
    }
}

/// `1a2b3c4d  name`; a name with a line break in it is escaped, and the line begins with a backslash, as sha256sum has it.
fn digest_line(digest: Digest, file: &Path) -> Vec<u8> {
    let (mark, name) = escape_name(file);
    [mark, digest.to_string().as_bytes(), b"  ", &name].concat()
}

/// A name in which nothing ends a line, and what the line begins with.
fn escape_name(file: &Path) -> (&'static [u8], Vec<u8>) {
    let name = file.as_os_str().as_bytes();
    let escape = |&byte: &u8| {
        let letter = ESCAPES.iter().find(|(escaped, _)| *escaped == byte).map(|(_, letter)| *letter);
        letter.map(|_| b'\\').into_iter().chain([letter.unwrap_or(byte)])
    };
    let escaped: Vec<u8> = name.iter().flat_map(escape).collect();
    (if escaped.len() > name.len() { b"\\" } else { b"" }, escaped)
}

/// Bytes of a name that would end a line or begin an escape, and their letters after the backslash.
const ESCAPES: [(u8, u8); 3] = [(b'\n', b'n'), (b'\r', b'r'), (b'\\', b'\\')];

/// The digest and the name on a line, or nothing if it is not of that form.
fn parse_line(line: &[u8]) -> Option<(u32, PathBuf)> {
    let (line, is_escaped) = line.strip_prefix(b"\\").map_or((line, false), |rest| (rest, true));
    let (digest, name) = line.split_at_checked(8)?;
    let name = name.strip_prefix(b"  ").or_else(|| name.strip_prefix(b" *")).filter(|name| !name.is_empty())?;
    // A sign would be taken for a part of the number.
    let digits = str::from_utf8(digest).ok().filter(|digits| digits.bytes().all(|digit| digit.is_ascii_hexdigit()));
    let digest = u32::from_str_radix(digits?, 16).ok()?;
    Some((digest, OsString::from_vec(if is_escaped { unescape_name(name) } else { name.to_owned() }).into()))
}

fn unescape_name(name: &[u8]) -> Vec<u8> {
    let mut bytes = name.iter().copied();
    let next = || {
        let byte = bytes.next()?;
        let letter = if byte == b'\\' { bytes.next() } else { None };
        let unescape =
            |letter| ESCAPES.iter().find(|(_, code)| *code == letter).map_or(letter, |(original, _)| *original);
        Some(letter.map_or(byte, unescape))
    };
    std::iter::from_fn(next).collect()
}

/// What checking has found so far.
#[derive(Default)]
struct CheckCounts {
    lines: u64,
    malformed: u64,
    different: u64,
    unreadable: u64,
}

/// Checks the files that lists name.
fn check_lists(reader: &DigestReader, lists: &[PathBuf], (quiet, output): (bool, &mut DigestOutput)) -> CmdResult {
    let mut counts = CheckCounts::default();
    for list in lists {
        let lines_before = counts.lines;
        for text in read_lines(list)? {
            let text = text.context(format_args!("cannot read {}", list.display()))?;
            let Some((expected, name)) = parse_line(text.strip_suffix(b"\r").unwrap_or(&text)) else {
                counts.malformed += u64::from(!text.is_empty());
                continue;
            };
            counts.lines += 1;
            let verdict = match reader.digest(&name) {
                Ok(digest) if digest.value() == expected => "OK",
                Ok(_) => {
                    counts.different += 1;
                    "FAILED"
                }
                Err(fault) if reader.is_interrupted() => return Err(fault),
                Err(fault) => {
                    fault.report();
                    counts.unreadable += 1;
                    "FAILED open or read"
                }
            };
            if !quiet || verdict != "OK" {
                let file = FileDigest::of(&name, None, (verdict != "OK").then(|| verdict.to_owned()));
                let (mark, name) = escape_name(&name);
                output.add(file, [mark, &name, b": ", verdict.as_bytes(), b"\n"].concat())?;
            }
        }
        if counts.lines == lines_before {
            let list = list.display();
            bail!("{list}: no line is a digest of eight digits, two spaces and a name, as `kelvin digest` prints them");
        }
    }
    for (count, singular, plural) in [
        (counts.malformed, "line is improperly formatted", "lines are improperly formatted"),
        (counts.unreadable, "file could not be read", "files could not be read"),
        (counts.different, "digest did not match", "digests did not match"),
    ] {
        if count > 0 {
            notice!("warning: {count} {}", if count == 1 { singular } else { plural });
        }
    }
    Ok(counts.different + counts.unreadable == 0)
}

fn read_lines(list: &Path) -> Result<Box<dyn Iterator<Item = io::Result<Vec<u8>>>>, CliError> {
    if list == Path::new(STANDARD_INPUT) {
        return Ok(Box::new(output::locked_stdin()?.split(b'\n')));
    }
    Ok(Box::new(BufReader::new(Target::find(list)?.open(Access::Buffered)?).split(b'\n')))
}

/// Reads files, and prints how if asked to.
struct DigestReader {
    /// CPUs that may be used.
    cpus: u32,
    threads: u32,
    verbose: bool,
    tuning_cache: RefCell<Option<TuningCache>>,
}

impl DigestReader {
    fn digest(&self, file: &Path) -> Result<Digest, CliError> {
        if file == Path::new(STANDARD_INPUT) {
            return digest_stdin();
        }
        let target = Target::find(file)?;
        let progress = StatusLine::after_delay();
        let find_setting = |source| {
            let cache = self.tuning_cache.borrow();
            cache.as_ref()?.find(&self.tuning_key(&target, source).ok()?, source)
        };
        let show = |bytes| progress.show_bytes(bytes, Some(target.bytes()));
        let plan = DigestOptions { max_threads: self.threads, remembered: &find_setting, progress: &show };
        let result = fast_digest::digest_file(&target, plan);
        drop(progress);
        let result = result?;
        if let (true, Some(cache)) = (result.is_search_complete, self.tuning_cache.borrow_mut().as_mut()) {
            cache.insert(self.tuning_key(&target, result.source)?, result.setting);
        }
        if target.bytes() == 0 && result.bytes > 0 {
            let (path, bytes) = (file.display(), result.bytes);
            notice!("note: {path} states 0 bytes, and was read until its end: {bytes} bytes");
        }
        if self.verbose {
            eprint_line(verbose_line(file, &result));
        }
        Ok(result.digest)
    }

    fn tuning_key(&self, target: &Target, source: DataSource) -> Result<TuningKey, CliError> {
        TuningKey::of_file(target, source, self.cpus.min(self.threads))
    }

    fn is_interrupted(&self) -> bool {
        kelvin_sys::stop_signals::stop_signal().is_some()
    }
}

/// `data.bin: 4 GiB in 0.31 s, 13.1 GiB/s, by pread of 128 KiB, 2 threads; 100 % of it was in memory`.
fn verbose_line(file: &Path, result: &DigestResult) -> String {
    let ReadSetting { method, threads } = result.setting;
    let access_text = if method.access == Access::Direct { " past the page cache" } else { "" };
    format!(
        "{}: {} in {}, {}, by {} of {}{access_text}, {}; about {} of it was in memory",
        file.display(),
        units::bytes(result.bytes),
        units::seconds(result.nanoseconds as f64 / 1e9),
        units::value_text(result.rate(), kelvin_core::Unit::BytesPerSecond),
        method.engine,
        units::bytes(method.block as u64),
        if threads == 1 { "1 thread".to_owned() } else { format!("{threads} threads") },
        units::share(result.cached_share),
    )
}

/// The digest of standard input: a file, a pipe or a terminal.
fn digest_stdin() -> Result<Digest, CliError> {
    let (mut digest, mut offset) = (Digest::default(), 0);
    let mut block = vec![0; STDIN_BLOCK];
    let mut input = output::locked_stdin()?;
    loop {
        match input.read(&mut block) {
            Ok(0) => return Ok(digest),
            Ok(count) => {
                digest.add(offset, &block[..count]);
                offset += count as u64;
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => {
                if let Some(signal) = kelvin_sys::stop_signals::stop_signal() {
                    bail!("interrupted by {signal}");
                }
            }
            Err(error) => return Err(CliError::new(output::STDIN_READ_FAILED, error)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::OsStr;

    #[test]
    fn written_lines_are_read_back() {
        for name in
            [&b"data.bin"[..], b"a b", b"  x", b"with\nbreak", b"back\\slash", "ünï".as_bytes(), b"no text: \xff"]
        {
            let mut digest = Digest::default();
            digest.add(0, name);
            let path = Path::new(OsStr::from_bytes(name));
            assert_eq!(parse_line(&digest_line(digest, path)), Some((digest.value(), path.to_owned())));
        }
        assert_eq!(digest_line(Digest::default(), Path::new("a\rb")), b"\\00000000  a\\rb");
        assert_eq!(parse_line(b"0000ABCD *x"), Some((0xabcd, "x".into())));
        assert_eq!(parse_line(b"\\00000001  a\\xb\\"), Some((1, "axb\\".into())));
        for line in
            ["", "0000abcd", "0000abcd  ", "0000abc  x", "+000abcd  x", "0000abcg  x", "0000abcdx  x", "é000abc  x"]
        {
            assert_eq!(parse_line(line.as_bytes()), None, "{line}");
        }
    }
}
