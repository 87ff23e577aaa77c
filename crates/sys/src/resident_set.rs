//! This process's resident set, made small before it starts a program by vfork: at exec(2) the kernel takes the larger of the peaks of both
//! memories as the program's.

use std::fs::File;
use std::io::Write;
use std::ops::Range;
use std::sync::OnceLock;

use crate::Result;

/// The value for /proc/PID/clear_refs that sets the peak to the present size (proc(5), since Linux 4.0).
const RESET_PEAK: &[u8] = b"5";

/// Gives back the pages of files that this process maps and has not changed, such as its code, and sets its peak to what is left. A page
/// that is used again is mapped again, from memory.
///
/// # Errors
/// Those of the files in /proc: the peak is larger then.
pub fn shrink() -> Result<()> {
    static UNCHANGED: OnceLock<Vec<Range<usize>>> = OnceLock::new();
    let read = || unchanged_files(&std::fs::read_to_string("/proc/self/smaps").unwrap_or_default());
    for range in UNCHANGED.get_or_init(read) {
        // SAFETY: no page of it was changed, and none can be since it cannot be written: what the file has comes back. A range that is
        // unmapped is an error.
        unsafe { libc::madvise(range.start as *mut libc::c_void, range.len(), libc::MADV_DONTNEED) };
    }
    File::options().write(true).open("/proc/self/clear_refs")?.write_all(RESET_PEAK)
}

/// The ranges of files in /proc/PID/smaps that cannot be written, and that have no page of their own: relocations were written into some
/// before they were protected.
fn unchanged_files(smaps: &str) -> Vec<Range<usize>> {
    let mut ranges: Vec<Range<usize>> = Vec::new();
    // The mapping whose fields follow, if it may be one.
    let mut mapping: Option<Range<usize>> = None;
    for line in smaps.lines() {
        if let Some((range, is_protected_file)) = mapping_of(line) {
            ranges.extend(mapping.take());
            mapping = is_protected_file.then_some(range);
        } else if let Some(("Anonymous" | "Swap", bytes)) = line.split_once(':')
            && bytes.trim() != "0 kB"
        {
            mapping = None;
        }
    }
    ranges.extend(mapping);
    ranges
}

/// The addresses of a mapping, and whether it is one of a file that cannot be written; `None` for the line of a field.
fn mapping_of(line: &str) -> Option<(Range<usize>, bool)> {
    let mut words = line.split_ascii_whitespace();
    let (start, end) = words.next()?.split_once('-')?;
    let address = |text| usize::from_str_radix(text, 16).ok();
    let range = address(start)?..address(end)?;
    let is_protected = matches!(words.next()?, "r--p" | "r-xp");
    Some((range, is_protected && words.nth(3).is_some_and(|path| path.starts_with('/'))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_unchanged_pages_of_files_are_given_back() {
        let mapping = |header: &str, anonymous: u32, swap: u32| {
            format!("{header}\nSize: 4 kB\nAnonymous: {anonymous} kB\nSwap:   {swap} kB\nVmFlags: rd mr\n")
        };
        let smaps = [
            mapping("1000-2000 r--p 00000000 fe:00 2                     /usr/bin/cat", 0, 0),
            mapping("2000-3000 r-xp 00001000 fe:00 2                     /usr/bin/cat", 0, 0),
            // Relocated, and protected since; one of these swapped out.
            mapping("3000-4000 r--p 00002000 fe:00 2                     /usr/bin/cat", 4, 0),
            mapping("4000-5000 r--p 00002000 fe:00 2                     /usr/bin/cat", 0, 4),
            mapping("5000-6000 rw-p 00003000 fe:00 2                     /usr/bin/cat", 0, 0),
            mapping("6000-7000 r--p 00000000 00:00 0", 0, 0),
            mapping("7ffff7fc1000-7ffff7fc3000 r-xp 00000000 00:00 0     [vdso]", 0, 0),
            mapping("a000-b000 r--p 00000000 fe:00 3                     /usr/lib/libc.so.6", 0, 0),
        ];
        assert_eq!(unchanged_files(&smaps.concat()), [0x1000..0x2000, 0x2000..0x3000, 0xa000..0xb000]);
        assert_eq!(unchanged_files(""), Vec::<Range<usize>>::new());
    }
}
