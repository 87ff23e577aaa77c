//! The image that a fork of this process copies, and its reduction to that of a small program.

use std::sync::atomic::Ordering;

use crate::{Error, Result, check, process};

/// What fork copies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ForkCopy {
    /// Mappings.
    pub mappings: usize,
    /// Bytes behind the page-table entries: the resident pages of private mappings that hold at least one private page.
    /// Of other mappings fork copies no page tables, because a fault finds their pages again (`vma_needs_copy` in
    /// mm/memory.c).
    pub resident: u64,
}

/// While it exists, fork excludes from the child what a small dynamically linked C program would not have: heap, other
/// anonymous memory, libraries other than the C library and its loader, and most of the executable's larger data and
/// code (MADV_DONTFORK). What stays: the executable's constants, the code that children run, the pages of its data
/// through which it calls the C library, the C library, the loader, this thread's own data, the stack, shared memory.
///
/// The code matters because a child's first step in it is a page fault, which maps the pages around as well: of a small
/// program one or two, of this one sixteen, at as much as a third of a fault each.
///
/// Children forked meanwhile may touch only what stays, so only those of [`crate::process`] may be forked.
#[derive(Debug)]
pub struct SmallImage {
    excluded_ranges: Vec<(usize, usize)>,
}

impl SmallImage {
    /// Marks what to exclude. The caller's thread must be the only one.
    ///
    /// # Errors
    /// A second thread, a second image at the same time, or a /proc/self/smaps that cannot be read.
    pub fn enter() -> Result<Self> {
        // The C library's fork goes through the heaps of all threads in the child.
        if thread_count()? != 1 {
            return Err(Error::other("a small image needs a single-threaded process"));
        }
        if process::SMALL_IMAGE.swap(true, Ordering::AcqRel) {
            return Err(Error::other("a small image is already in force"));
        }
        let mut image = Self { excluded_ranges: Vec::new() };
        let smaps = std::fs::read_to_string("/proc/self/smaps")?;
        let mappings = mappings(&smaps);
        for (start, end) in ranges_to_hide(&mappings, &kept_addresses()) {
            // SAFETY: only decides what fork copies; this process's own memory stays as it is. The children that are
            // forked meanwhile touch none of it, as the type promises.
            check(unsafe { libc::madvise(start as *mut _, end - start, libc::MADV_DONTFORK) })?;
            image.excluded_ranges.push((start, end));
        }
        release_unused_stack(&mappings)?;
        Ok(image)
    }
}

/// Bytes below this function's frame that stay: the red zone, and the frames of the calls made from here.
const KEPT_STACK_BYTES: usize = 8 << 10;

/// Frees the stack pages that earlier, deeper calls have touched and nothing uses now: a fork would copy them.
fn release_unused_stack(mappings: &[SmapsMapping<'_>]) -> Result<()> {
    let mark = 0u8;
    let mark_address = std::ptr::from_ref(&mark) as usize;
    let Some(stack) = mappings.iter().find(|mapping| mapping.name == "[stack]" && mapping.contains(mark_address))
    else {
        // A thread's stack is other anonymous memory, which is left out of the child or not as it is.
        return Ok(());
    };
    let end = (mark_address - KEPT_STACK_BYTES) & !4095;
    if end <= stack.start {
        return Ok(());
    }
    // SAFETY: the range lies in this thread's stack, wholly below the frames in use and what the call itself needs; what
    // is there is dead, and a later, deeper call finds fresh pages.
    check(unsafe { libc::madvise(stack.start as *mut _, end - stack.start, libc::MADV_DONTNEED) }).map(drop)
}

impl Drop for SmallImage {
    fn drop(&mut self) {
        for &(start, end) in &self.excluded_ranges {
            // SAFETY: as in `enter`. What was unmapped meanwhile is an error without effect.
            unsafe { libc::madvise(start as *mut _, end - start, libc::MADV_DOFORK) };
        }
        process::SMALL_IMAGE.store(false, Ordering::Release);
    }
}

/// Threads of this process.
///
/// # Errors
/// A /proc/self/task that cannot be read.
pub fn thread_count() -> Result<usize> {
    Ok(std::fs::read_dir("/proc/self/task")?.count())
}

/// What a fork of this process would copy now.
///
/// # Errors
/// A /proc/self/smaps that cannot be read.
pub fn fork_copy() -> Result<ForkCopy> {
    Ok(sum_fork_copy(&std::fs::read_to_string("/proc/self/smaps")?))
}

/// Bytes of base and of huge pages that are resident in the mapping around an address.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ResidentBytes {
    /// All of it.
    pub bytes: u64,
    /// The part in transparent huge pages.
    pub huge: u64,
}

/// The resident bytes of the mapping (or its merged neighbours) that holds an address.
///
/// # Errors
/// A /proc/self/smaps that cannot be read, or an address that is not mapped.
pub fn resident_around(address: usize) -> Result<ResidentBytes> {
    let smaps = std::fs::read_to_string("/proc/self/smaps")?;
    let resident =
        mappings(&smaps).into_iter().find(|mapping| mapping.contains(address)).map(|mapping| mapping.resident);
    resident.ok_or_else(|| Error::other(format!("/proc/self/smaps has no mapping at {address:#x}")))
}

/// One mapping of /proc/self/smaps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct SmapsMapping<'a> {
    start: usize,
    end: usize,
    is_shared: bool,
    is_code: bool,
    /// Whether it is marked as left out by fork (MADV_DONTFORK).
    is_excluded: bool,
    /// Bytes of private pages, of which fork copies the page tables.
    private_bytes: u64,
    /// Resident bytes, and the part in transparent huge pages.
    resident: ResidentBytes,
    /// Path, `[stack]` and the like, or nothing.
    name: &'a str,
}

impl<'a> SmapsMapping<'a> {
    fn parse(line: &'a str) -> Option<Self> {
        let (range, rest) = line.split_once(' ')?;
        let (start, end) = range.split_once('-')?;
        let mut fields = rest.splitn(5, ' ');
        let permissions = fields.next()?;
        // offset, device, inode; then the name after any number of spaces
        let name = fields.nth(3).unwrap_or("").trim();
        Some(Self {
            start: usize::from_str_radix(start, 16).ok()?,
            end: usize::from_str_radix(end, 16).ok()?,
            is_shared: permissions.ends_with('s'),
            is_code: permissions.contains('x'),
            is_excluded: false,
            private_bytes: 0,
            resident: ResidentBytes::default(),
            name,
        })
    }

    fn contains(&self, address: usize) -> bool {
        (self.start..self.end).contains(&address)
    }
}

fn mappings(smaps: &str) -> Vec<SmapsMapping<'_>> {
    let mut mappings: Vec<SmapsMapping<'_>> = Vec::new();
    for line in smaps.lines() {
        let Some((key, value)) = line.split_once(':').filter(|(key, _)| !key.contains(['-', ' '])) else {
            mappings.extend(SmapsMapping::parse(line));
            continue;
        };
        let Some(mapping) = mappings.last_mut() else { continue };
        let kibibytes = value.trim().strip_suffix(" kB").and_then(|number| number.trim().parse().ok()).unwrap_or(0);
        match key {
            "Rss" => mapping.resident.bytes = kibibytes << 10,
            "Anonymous" => mapping.private_bytes = kibibytes << 10,
            "AnonHugePages" => mapping.resident.huge = kibibytes << 10,
            "VmFlags" => mapping.is_excluded = value.split(' ').any(|flag| flag == "dc"),
            _ => {}
        }
    }
    mappings
}

/// Addresses whose mappings stay, with everything else of the same file.
#[derive(Clone, Copy, Debug)]
struct KeptAddresses {
    executable: usize,
    library: usize,
    loader: usize,
    /// This thread's own data, and its stack.
    thread: [usize; 2],
    /// A constant of the executable. Some linkers place constants behind the code in one mapping (GNU ld for aarch64).
    constant: usize,
    /// What children need of the executable, if nothing else of it is needed.
    children: Option<ChildPages>,
}

/// Pages of the executable that children use, each from a first to a last address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct ChildPages {
    /// The code that they run.
    code: (usize, usize),
    /// The data through which they call the C library.
    data: (usize, usize),
}

impl ChildPages {
    fn of_process() -> Self {
        let calls = process::child_calls();
        Self {
            code: page_range(&process::child_routines(), MAX_ROUTINE_BYTES),
            data: page_range(&[calls.start], calls.len()),
        }
    }
}

fn kept_addresses() -> KeptAddresses {
    let stack_variable = 0u8;
    // SAFETY: neither call has requirements; the addresses are only compared.
    let (loader, thread) = unsafe { (libc::getauxval(libc::AT_BASE) as usize, libc::__errno_location() as usize) };
    KeptAddresses {
        executable: kept_addresses as *const () as usize,
        library: libc::fork as *const () as usize,
        loader,
        thread: [thread, &raw const stack_variable as usize],
        constant: &raw const CONSTANT as usize,
        // Without optimisation the routines call helpers that lie anywhere in the code: all of it stays, and its data.
        children: if cfg!(debug_assertions) { None } else { Some(ChildPages::of_process()) },
    }
}

/// A constant among the others.
static CONSTANT: [u8; 16] = [1; 16];

/// Bytes of a routine whose children run this program's code, at most.
const MAX_ROUTINE_BYTES: usize = 512;

/// The pages of parts of the executable that lie side by side and have this many bytes each.
fn page_range(addresses: &[usize], bytes: usize) -> (usize, usize) {
    let first = addresses.iter().copied().min().unwrap_or(0);
    let last = addresses.iter().copied().max().unwrap_or(0);
    (first & !(KEPT_DATA_BYTES - 1), (last + bytes).next_multiple_of(KEPT_DATA_BYTES))
}

/// Bytes that stay of each part of the executable's data: a small program has a page of each.
const KEPT_DATA_BYTES: usize = 4096;

/// Minimum bytes of the executable's data worth excluding: excluding a range splits its mapping, which costs a fork as
/// much as copying some 20 pages.
const MIN_HIDDEN_BYTES: usize = 20 * 4096;

/// The ranges to exclude: everything that is neither shared, nor special, nor of a file that a landmark lies in, nor
/// the zero-initialised data right behind one; and most of the executable's own data and code, unless the C library is
/// linked into it.
fn ranges_to_hide(mappings: &[SmapsMapping<'_>], addresses: &KeptAddresses) -> Vec<(usize, usize)> {
    let mapping_name =
        |address: usize| mappings.iter().find(|mapping| mapping.contains(address)).map(|mapping| mapping.name);
    let (executable, library) = (mapping_name(addresses.executable), mapping_name(addresses.library));
    let files = [executable, library, mapping_name(addresses.loader)];
    // Where the C library is linked in, children run that code too, and use its data.
    let children = addresses.children.filter(|_| executable != library);
    let mut excluded_ranges = Vec::new();
    // Where the data behind the last file that stays must begin, and whether that file is the executable.
    let mut next_data = (0, false);
    for mapping in mappings {
        let holds = |&(start, end): &(usize, usize)| mapping.start <= start && end <= mapping.end;
        if let Some(code) = children.map(|pages| pages.code).filter(holds) {
            let has_constants = |&(start, end): &(usize, usize)| (start..end).contains(&addresses.constant);
            excluded_ranges.extend(parts_around(mapping, code).filter(|part| !has_constants(part)));
        }
        let is_kept_file = !mapping.name.is_empty() && files.contains(&Some(mapping.name));
        let is_zeroed = mapping.name.is_empty() && mapping.start == next_data.0;
        let is_special = mapping.name.starts_with('[') && mapping.name != "[heap]";
        let is_executable = is_kept_file && executable == Some(mapping.name) || is_zeroed && next_data.1;
        if is_kept_file || is_zeroed {
            if let Some(pages) = children.filter(|_| is_executable && mapping.private_bytes > 0) {
                let last_page = (mapping.end - KEPT_DATA_BYTES, mapping.end);
                excluded_ranges.extend(parts_around(mapping, Some(pages.data).filter(holds).unwrap_or(last_page)));
            }
        } else if !(mapping.is_shared
            || is_special
            || addresses.thread.iter().any(|&address| mapping.contains(address)))
        {
            excluded_ranges.push((mapping.start, mapping.end));
        }
        next_data = if is_kept_file { (mapping.end, is_executable) } else { (0, false) };
    }
    excluded_ranges
}

/// What of a mapping lies before and behind a part that stays, where it is worth excluding.
fn parts_around(mapping: &SmapsMapping<'_>, (start, end): (usize, usize)) -> impl Iterator<Item = (usize, usize)> {
    let parts = [(mapping.start, start), (end, mapping.end)];
    parts.into_iter().filter(|(start, end)| end - start >= MIN_HIDDEN_BYTES)
}

/// Adds up what fork copies of the mappings of /proc/self/smaps.
fn sum_fork_copy(smaps: &str) -> ForkCopy {
    let mut sum = ForkCopy::default();
    for mapping in mappings(smaps).iter().filter(|mapping| !mapping.is_excluded) {
        sum.mappings += 1;
        if !mapping.is_shared && mapping.private_bytes > 0 {
            sum.resident += mapping.resident.bytes;
        }
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Ranges, permissions, KiB of own pages and names, as smaps has them.
    const MAPS: [(&str, u32, &str); 15] = [
        ("1000-2000 r--p", 0, "/usr/bin/probe"),
        ("2000-3000 r-xp", 0, "/usr/bin/probe"),
        ("3000-1f000 r--p", 12, "/usr/bin/probe"),
        ("1f000-20000 rw-p", 0, ""),
        ("20000-21000 rw-p", 4, "[heap]"),
        ("22000-30000 rw-p", 4, ""),
        ("30000-31000 r-xp", 0, "/usr/lib/libgcc_s.so.1"),
        ("31000-32000 rw-p", 4, "/usr/lib/libgcc_s.so.1"),
        ("40000-41000 rw-p", 4, ""),
        ("50000-51000 r-xp", 0, "/usr/lib/libc.so.6"),
        ("51000-54000 rw-p", 4, "/usr/lib/libc.so.6"),
        ("54000-55000 rw-p", 4, ""),
        ("55000-56000 rw-p", 4, ""),
        ("60000-61000 rw-s", 4, "/dev/zero (deleted)"),
        ("70000-71000 rw-p", 4, "[stack]"),
    ];

    fn smaps() -> String {
        let entry = |&(range, anonymous, name): &(&str, u32, &str)| {
            format!("{range} 00001000 fe:00 42                         {name}\nAnonymous: {anonymous:14} kB\n")
        };
        MAPS.iter().map(entry).collect()
    }

    #[test]
    fn small_program_mappings_are_kept() {
        let smaps = smaps();
        let mappings = mappings(&smaps);
        assert_eq!(mappings.len(), MAPS.len());
        let zero = SmapsMapping {
            start: 0x60000,
            end: 0x61000,
            is_shared: true,
            is_code: false,
            is_excluded: false,
            private_bytes: 4 << 10,
            resident: ResidentBytes::default(),
            name: "/dev/zero (deleted)",
        };
        assert_eq!(mappings[13], zero);
        let addresses = KeptAddresses {
            executable: 0x2010,
            library: 0x50010,
            loader: 0,
            thread: [0x40010, 0x70010],
            constant: 0,
            children: Some(ChildPages { code: (0, 0), data: (0x4000, 0x5000) }),
        };
        let other_ranges =
            [(0x20000, 0x21000), (0x22000, 0x30000), (0x30000, 0x31000), (0x31000, 0x32000), (0x55000, 0x56000)];
        // The page in the middle that holds the calls stays, with the little before it.
        let mut expected = vec![(0x5000, 0x1f000)];
        expected.extend(other_ranges);
        assert_eq!(ranges_to_hide(&mappings, &addresses), expected);
        // Where the calls are elsewhere, the last page.
        let pages_elsewhere = Some(ChildPages { code: (0, 0), data: (0x90000, 0x91000) });
        expected.splice(..1, [(0x3000, 0x1e000)]);
        assert_eq!(ranges_to_hide(&mappings, &KeptAddresses { children: pages_elsewhere, ..addresses }), expected);
        // Where children may use any of the executable, all of it.
        assert_eq!(ranges_to_hide(&mappings, &KeptAddresses { children: None, ..addresses }), other_ranges);
        // With the C library linked in, the executable's data is the library's too, and stays.
        let static_addresses = KeptAddresses { library: 0x2020, ..addresses };
        let hidden_ranges = ranges_to_hide(&mappings, &static_addresses);
        assert!(
            hidden_ranges.contains(&(0x50000, 0x51000)) && !hidden_ranges.contains(&(0x3000, 0x1e000)),
            "{hidden_ranges:x?}"
        );
    }

    #[test]
    fn only_child_code_is_kept() {
        let code = |end| SmapsMapping {
            start: 0x1000,
            end,
            is_shared: false,
            is_code: true,
            is_excluded: false,
            private_bytes: 0,
            resident: ResidentBytes::default(),
            name: "/usr/bin/probe",
        };
        let addresses = KeptAddresses {
            executable: 0x2010,
            library: 0,
            loader: 0,
            thread: [0; 2],
            constant: 0,
            children: Some(ChildPages { code: page_range(&[0x40ff0, 0x40020], MAX_ROUTINE_BYTES), data: (0, 0) }),
        };
        assert_eq!(addresses.children.map(|pages| pages.code), Some((0x40000, 0x42000)));
        // Before and behind it, where that is worth a separate mapping.
        assert_eq!(ranges_to_hide(&[code(0x80000)], &addresses), [(0x1000, 0x40000), (0x42000, 0x80000)]);
        assert_eq!(ranges_to_hide(&[code(0x50000)], &addresses), [(0x1000, 0x40000)]);
        // The part with the constants stays.
        assert_eq!(
            ranges_to_hide(&[code(0x80000)], &KeptAddresses { constant: 0x50000, ..addresses }),
            [(0x1000, 0x40000)]
        );
        assert_eq!(
            ranges_to_hide(&[code(0x80000)], &KeptAddresses { constant: 0x2000, ..addresses }),
            [(0x42000, 0x80000)]
        );
        // Not where children need all of it, or the routines lie elsewhere.
        assert_eq!(ranges_to_hide(&[code(0x80000)], &KeptAddresses { children: None, ..addresses }), []);
        assert_eq!(ranges_to_hide(&[code(0x41000)], &addresses), []);
        assert_eq!(ranges_to_hide(&[code(0x80000)], &KeptAddresses { library: 0x2020, ..addresses }), []);
    }

    #[test]
    fn calls_of_children_lie_in_data_of_the_executable() {
        let smaps = std::fs::read_to_string("/proc/self/smaps").unwrap();
        let mappings = mappings(&smaps);
        let holder = |address: usize| mappings.iter().find(|mapping| mapping.contains(address)).unwrap();
        let ChildPages { code, data } = ChildPages::of_process();
        let executable = holder(kept_addresses().executable).name;
        assert_eq!((holder(code.0).name, holder(data.0).name), (executable, executable));
        assert!(holder(code.0).is_code && holder(data.1 - 1).name == executable, "{code:x?} {data:x?}");
        assert_eq!(data.1 - data.0, KEPT_DATA_BYTES, "they are on one page");
    }

    const SMAPS: &str = "\
1000-2000 r-xp 00001000 fe:00 42                         /usr/bin/a-b: c
Rss:                  40 kB
Anonymous:             0 kB
AnonHugePages:         0 kB
VmFlags: rd ex mr mw me 
3000-9000 rw-p 00002000 fe:00 42                         /usr/bin/probe
Rss:                  24 kB
Anonymous:             4 kB
AnonHugePages:         0 kB
VmFlags: rd wr mr mw me ac 
200000-400000 rw-p 00000000 00:00 0 
Rss:                2048 kB
Anonymous:          2048 kB
AnonHugePages:      2048 kB
VmFlags: rd wr mr mw me dc ac hg 
";

    #[test]
    fn fork_copy_counts_private_mappings() {
        assert_eq!(sum_fork_copy(SMAPS), ForkCopy { mappings: 2, resident: 24 << 10 });
        let resident_at =
            |address| mappings(SMAPS).iter().find(|mapping| mapping.contains(address)).map(|mapping| mapping.resident);
        assert_eq!(resident_at(0x210000), Some(ResidentBytes { bytes: 2 << 20, huge: 2 << 20 }));
        assert_eq!(resident_at(0x1800), Some(ResidentBytes { bytes: 40 << 10, huge: 0 }));
        assert_eq!(resident_at(0x900000), None);
    }

    #[test]
    fn small_image_requires_single_thread() {
        let copy = fork_copy().unwrap();
        assert!(copy.mappings > 3 && copy.resident > 4096, "{copy:?}");
        let resident = resident_around(SMAPS.as_ptr() as usize).unwrap();
        assert!(resident.bytes > 0);
        // The test harness runs this test on a thread next to the main one.
        assert!(thread_count().unwrap() > 1 && SmallImage::enter().is_err());
        assert!(!process::SMALL_IMAGE.load(Ordering::Acquire));
    }
}
