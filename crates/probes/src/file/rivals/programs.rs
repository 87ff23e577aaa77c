//! Programs that read files: where they are, how each is made to do the same reading, and what it reports.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use kelvin_core::catalogue::Rival;

use super::super::prelude::*;
use super::{RivalTask, SideResult};
use crate::program::Program;

/// Bytes that lmbench's programs read at a time: bench.h.
pub(super) const XFERSIZE: u64 = 64 << 10;
/// Longest file name that bw_file_rd accepts, in bytes.
const MAX_NAME_LENGTH: usize = 255;
/// Most times that cat is given the file: far below the longest possible command line.
const MAX_CAT_COPIES: u64 = 256;
/// Time limit for a program to read the file once while it is observed.
const OBSERVE_TIMEOUT: Duration = Duration::from_secs(5);

/// What an installed program does as a reader of files.
impl Program {
    /// Whether it sums each word that it has read.
    pub(super) fn computes_digest(&self) -> bool {
        self.rival == Rival::BwFileRd
    }

    /// The bytes of its reads where its user has no choice.
    pub(super) fn fixed_block(&self, target: &Target) -> ProbeResult<u64> {
        match self.rival {
            Rival::BwFileRd => Ok(XFERSIZE),
            _ => self.observe_cat_block(target),
        }
    }

    /// Its side of a task.
    pub(super) fn read(&self, task: &RivalTask) -> ProbeResult<SideResult> {
        match self.rival {
            Rival::Fio => self.fio(task),
            Rival::Dd => self.dd(task),
            Rival::Cat => self.cat(task),
            Rival::BwFileRd => self.bw_file_rd(task),
            Rival::Perf | Rival::Iperf3 => Err(ProbeError::fail(format!("{} reads no files", self.rival.name()))),
        }
    }

    fn fio(&self, task: &RivalTask) -> ProbeResult<SideResult> {
        let (pattern, seed) = match task.order {
            BlockOrder::Sequential => ("read", 1),
            // fio takes 32 bits of it.
            BlockOrder::Random { seed } => ("randread", seed & u64::from(u32::MAX)),
        };
        let output = self.run_checked(
            self.command()
                .arg(option_with_value("--filename=", &escape_fio_path(task.target.path())))
                .args(["--name=kelvin", "--readonly", "--thread", "--time_based", "--ioengine=psync", "--invalidate=0"])
                .args(["--disable_lat=1", "--disable_clat=1", "--disable_slat=1", "--disable_bw_measurement=1"])
                .args(["--output-format=terse", "--terse-version=3", "--norandommap=0", "--randrepeat=0"])
                .arg(format!("--runtime={}ms", task.time.as_millis()))
                .arg(format!("--rw={pattern}"))
                .arg(format!("--randseed={seed}"))
                .arg(format!("--bs={}", task.block))
                .arg(format!("--size={}", task.bytes))
                .arg(format!("--direct={}", u8::from(task.state == PageCacheState::Direct))),
        )?;
        let (bytes, seconds) = parse_fio_terse(&output.printed)
            .or_fail(format!("fio reports nothing about its reading: {}", output.one_line()))?;
        side_result(bytes, seconds, format!("by its own clock, {bytes} bytes in {seconds:.3} s"))
    }

    fn dd(&self, task: &RivalTask) -> ProbeResult<SideResult> {
        let (mut bytes, mut seconds, mut passes) = (0, 0.0, 0);
        while seconds < task.time.as_secs_f64() {
            let mut command = self.command();
            command.arg(option_with_value("if=", task.target.path().as_os_str())).arg("of=/dev/null");
            command.arg(format!("bs={}", task.block)).arg(format!("count={}", task.bytes / task.block));
            if task.state == PageCacheState::Direct {
                command.arg("iflag=direct");
            }
            let output = self.run_checked(&mut command)?;
            let (bytes_copied, pass_seconds) = parse_dd_summary(&output.complaint)
                .filter(|&(bytes_copied, pass_seconds)| {
                    bytes_copied == task.bytes / task.block * task.block && pass_seconds > 0.0
                })
                .or_fail(format!("dd was to copy {} bytes: {}", task.bytes, output.one_line()))?;
            (bytes, seconds, passes) = (bytes + bytes_copied, seconds + pass_seconds, passes + 1);
        }
        side_result(bytes, seconds, format!("by its own clock, {bytes} bytes in {passes} passes and {seconds:.3} s"))
    }

    /// cat has no clock: its start and its end take the same time for a file once and for the file many times, and so cancel in
    /// the difference.
    fn cat(&self, task: &RivalTask) -> ProbeResult<SideResult> {
        let read = |copies: u64| -> ProbeResult<f64> {
            let mut command = self.command();
            command.args((0..copies).map(|_| task.target.path())).stdout(Stdio::null());
            let start = monotonic();
            self.run_checked(&mut command)?;
            Ok((monotonic() - start) as f64 / 1e9)
        };
        // The first run finds the program itself in memory or not.
        read(1)?;
        let single_seconds = read(1)?;
        let copies = ((task.time.as_secs_f64() / single_seconds) as u64).clamp(2, MAX_CAT_COPIES);
        let repeated_seconds = read(copies)?;
        let side = time_of_extra_copies(task.bytes, copies, [single_seconds, repeated_seconds])?;
        Ok(SideResult { bytes: Some((copies + 2) * task.bytes), ..side })
    }

    fn bw_file_rd(&self, task: &RivalTask) -> ProbeResult<SideResult> {
        let path = task.target.path();
        let reason = format!(
            "needs a name of at most {MAX_NAME_LENGTH} bytes for bw_file_rd, and not {}; choose another directory by --dir",
            path.display()
        );
        skip_if(path.as_os_str().len() > MAX_NAME_LENGTH, reason)?;
        let repetitions = 2;
        let output = self.run_checked(
            // Without its calibration of the clock, which takes seconds; a pass is far longer than the clock's steps.
            self.command()
                .envs([("TIMING_O", "0"), ("LOOP_O", "0")])
                .env("ENOUGH", (task.time.as_micros() / repetitions).to_string())
                .args(["-W", "0", "-N", &repetitions.to_string(), &task.bytes.to_string(), "io_only"])
                .arg(path),
        )?;
        let rate = parse_bw_file_rd(&output.complaint)
            .or_fail(format!("bw_file_rd reports no rate: {}", output.one_line()))?;
        let words = format!("by its own clock, {:.2} MB a second in {repetitions} repetitions", rate / 1e6);
        Ok(SideResult { rate, bytes: None, words })
    }

    /// The bytes of cat's reads: it is given the file and then its standard input, on which it waits while the kernel's count of
    /// its calls is read.
    fn observe_cat_block(&self, target: &Target) -> ProbeResult<u64> {
        let mut command = self.command();
        command.arg(target.path()).arg("-").stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        let child = self.spawn(&mut command)?;
        let counters = format!("/proc/{}/io", child.0.id());
        let deadline = monotonic() + OBSERVE_TIMEOUT.as_nanos() as u64;
        while monotonic() < deadline {
            let reason = format!("needs {counters}, from which cat's block is derived");
            let text = fs::read_to_string(&counters).or_skip(reason)?;
            if let Some(block) = block_from_counters(&text, target.bytes()) {
                return Ok(block);
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        Err(ProbeError::skip(format!(
            "needs a cat that reads by calls which {counters} counts: after {} s it had not read {} bytes",
            OBSERVE_TIMEOUT.as_secs(),
            target.bytes()
        )))
    }
}

fn side_result(bytes: u64, seconds: f64, words: String) -> ProbeResult<SideResult> {
    fail_if(seconds <= 0.0 || bytes == 0, format!("{bytes} bytes in {seconds} s are no rate: {words}"))?;
    Ok(SideResult { rate: bytes as f64 / seconds, bytes: Some(bytes), words })
}

/// The time of this many copies of this many bytes beyond one of them: the program's start cancels in the difference.
fn time_of_extra_copies(
    bytes: u64,
    copies: u64,
    [single_seconds, repeated_seconds]: [f64; 2],
) -> ProbeResult<SideResult> {
    let words = format!("once in {single_seconds:.3} s, {copies} times in {repeated_seconds:.3} s, by the wall clock");
    side_result((copies - 1) * bytes, repeated_seconds - single_seconds, words)
}

fn option_with_value(option: &str, value: &OsStr) -> OsString {
    let mut argument = OsString::from(option);
    argument.push(value);
    argument
}

/// A path as fio takes it: a colon would begin the next one.
fn escape_fio_path(path: &Path) -> OsString {
    let escaped_bytes = path.as_os_str().as_bytes().iter().flat_map(|byte| match byte {
        b':' | b'\\' => vec![b'\\', *byte],
        other => vec![*other],
    });
    OsString::from_vec(escaped_bytes.collect())
}

/// Bytes and seconds of reading in fio's terse output, version 3: the sixth field is KiB, the ninth milliseconds.
fn parse_fio_terse(text: &str) -> Option<(u64, f64)> {
    let line = text.lines().find(|line| line.starts_with("3;"))?;
    let fields: Vec<&str> = line.split(';').collect();
    let error: u64 = fields.get(4)?.parse().ok()?;
    let kibibytes: u64 = fields.get(5)?.parse().ok()?;
    let milliseconds: u64 = fields.get(8)?.parse().ok()?;
    (error == 0).then_some((kibibytes << 10, milliseconds as f64 / 1e3))
}

/// Bytes and seconds in dd's last line: `67108864 bytes (67 MB, 64 MiB) copied, 0.0123 s, 5.5 GB/s`.
fn parse_dd_summary(text: &str) -> Option<(u64, f64)> {
    let line = text.lines().find(|line| line.contains(" copied, "))?;
    let bytes = line.split_whitespace().next()?.parse().ok()?;
    let seconds = line.split_once(" copied, ")?.1.split_whitespace().next()?.parse().ok()?;
    Some((bytes, seconds))
}

/// Bytes per second in bw_file_rd's output: megabytes of the file, and megabytes a second.
fn parse_bw_file_rd(text: &str) -> Option<f64> {
    let mut fields = text.lines().next()?.split_whitespace();
    let (_, rate): (f64, f64) = (fields.next()?.parse().ok()?, fields.next()?.parse().ok()?);
    (fields.next().is_none() && rate > 0.0).then_some(rate * 1e6)
}

/// The bytes of a call, a power of two, by the counters of a process that has read this many bytes of a file and little else.
fn block_from_counters(counters: &str, bytes: u64) -> Option<u64> {
    let count = |name: &str| counters.lines().find_map(|line| line.strip_prefix(name)?.trim().parse::<u64>().ok());
    let (read, calls) = (count("rchar:")?, count("syscr:")?);
    if read < bytes || calls == 0 {
        return None;
    }
    Some(1 << (read as f64 / calls as f64).log2().round() as u32)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::program::script_program as script;

    #[test]
    fn program_outputs_are_parsed() {
        let fio = "fio: some notice\n3;fio-3.33;kelvin;0;0;183288;1814732;453683;101;0;0;0.000000\n";
        assert_eq!(parse_fio_terse(fio), Some((183_288 << 10, 0.101)));
        assert_eq!(parse_fio_terse("3;fio-3.33;kelvin;0;5;183288;1814732;453683;101;0\n"), None);
        assert_eq!(parse_fio_terse("4;fio-3.33;kelvin\n"), None);
        let gnu = "512+0 records in\n512+0 records out\n67108864 bytes (67 MB, 64 MiB) copied, 0.0123 s, 5.5 GB/s\n";
        let busybox =
            "512+0 records in\n512+0 records out\n67108864 bytes (64.0MB) copied, 0.023416 seconds, 2.7GB/s\n";
        assert_eq!(parse_dd_summary(gnu), Some((67_108_864, 0.0123)));
        assert_eq!(parse_dd_summary(busybox), Some((67_108_864, 0.023416)));
        assert_eq!(parse_dd_summary("dd: failed to open\n"), None);
        assert_eq!(parse_bw_file_rd("67.11 2294.28\n"), Some(2_294_280_000.0));
        assert_eq!(parse_bw_file_rd("Usage: bw_file_rd [-C]\n"), None);
        assert_eq!(parse_bw_file_rd("67.11 0.00\n"), None);
    }

    #[test]
    fn block_is_derived_from_call_counts() {
        let counters = |read: u64, calls: u64| format!("rchar: {read}\nwchar: 9\nsyscr: {calls}\nsyscw: 512\n");
        // 512 calls for the file, and a few before and at its end.
        assert_eq!(block_from_counters(&counters((64 << 20) + 5000, 520), 64 << 20), Some(128 << 10));
        assert_eq!(block_from_counters(&counters((64 << 20) + 5000, 262), 64 << 20), Some(256 << 10));
        assert_eq!(block_from_counters(&counters(64 << 19, 262), 64 << 20), None);
    }

    #[test]
    fn fio_path_is_escaped() {
        assert_eq!(escape_fio_path(Path::new("/a:b\\c")), OsStr::new("/a\\:b\\\\c"));
    }

    fn task(directory: &Path) -> RivalTask {
        let path = directory.join("data");
        fs::write(&path, vec![7; 1 << 20]).unwrap();
        let target = Target::find(&path).unwrap();
        let (order, state, time) = (BlockOrder::Sequential, PageCacheState::Cached, Duration::from_millis(50));
        RivalTask { target, bytes: 1 << 20, block: 4096, order, state, computes_digest: false, time }
    }

    #[test]
    fn passes_accumulate_until_time_is_reached() {
        let directory = tempfile::tempdir().unwrap();
        let output = "echo '1048576 bytes (1.0 MB, 1.0 MiB) copied, 0.02 s, 52 MB/s' >&2";
        let dd = script(directory.path(), Rival::Dd, output);
        let side = dd.read(&task(directory.path())).unwrap();
        // Three passes of 20 ms for 50.
        assert_eq!(side.bytes, Some(3 << 20));
        assert!((side.rate - 52_428_800.0).abs() < 1.0, "{side:?}");
    }

    #[test]
    fn short_or_failed_read_has_no_rate() {
        let directory = tempfile::tempdir().unwrap();
        let failure = |program, text: &str| match script(directory.path(), program, text).read(&task(directory.path()))
        {
            Err(ProbeError::Fail(reason)) => reason,
            other => panic!("{other:?}"),
        };
        let short_copy_error = failure(Rival::Dd, "echo '1044480 bytes copied, 0.02 s, 52 MB/s' >&2");
        assert!(short_copy_error.contains("dd was to copy 1048576 bytes: 1044480 bytes"), "{short_copy_error}");
        let exit_error = failure(Rival::Dd, "echo 'dd: no' >&2; exit 3");
        assert!(exit_error.contains("dd ended with exit status: 3: dd: no"), "{exit_error}");
        assert!(failure(Rival::Fio, "echo fio-9").contains("fio reports nothing about its reading: fio-9"));
        assert!(failure(Rival::BwFileRd, "echo Usage >&2").contains("bw_file_rd reports no rate"));
    }

    #[test]
    fn start_time_is_not_in_rate() {
        // 30 ms to start, and then 10 ms for each file.
        let side = time_of_extra_copies(1 << 20, 5, [0.040, 0.080]).unwrap();
        assert!((side.rate - (1 << 20) as f64 / 0.010).abs() < 1.0, "{side:?}");
        assert!(
            matches!(time_of_extra_copies(1 << 20, 5, [0.040, 0.040]), Err(ProbeError::Fail(reason)) if reason.contains("no rate"))
        );
    }
}
