//! Files that are held open between requests, found again by the path that was asked for.
//!
//! A path is resolved again after a second: so a file that was replaced is served at most that long. Of a file that was changed
//! in place nothing old is served: its size or its times are looked at when it is sent.

use std::collections::HashMap;
use std::fs::File;
use std::io::Write;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant, SystemTime};

use http::StatusCode;
use kelvin_sys::fs::FileSystemKind;
use kelvin_sys::shared_slots::SharedSlot;
use rustix::fs::{MemfdFlags, memfd_create};
use rustix::io::{pread, retry_on_intr};

use crate::serve::cache_control::CacheRules;
use crate::serve::conditional::Validators;
use crate::serve::content_coding::ContentCoding;
use crate::serve::decoded_path::DecodedPath;
use crate::serve::document_root::{DocumentRoot, FileIdentity, RootEntry};

/// How long a path leads to the same file without being resolved again.
const REVALIDATE_AFTER: Duration = Duration::from_secs(1);
/// Longest path that is remembered: so that clients who write one path in many ways cost little.
const MAX_CACHED_PATH: usize = 512;

/// A file that is open to be sent.
#[derive(Debug)]
pub struct OpenFile {
    /// The file.
    pub file: File,
    /// What it was when it was opened.
    pub identity: FileIdentity,
    /// What distinguishes its content from others.
    pub validators: Validators,
    /// Its media type; of a compressed file, that of its content.
    pub media_type: &'static str,
    /// How it is compressed, if clients are told so.
    pub coding: Option<ContentCoding>,
    /// The same content in files that are compressed, for clients that take them.
    pub compressed: Vec<Arc<OpenFile>>,
    /// The header fields of an answer with all of it, and the empty line.
    pub head: String,
    /// Where those end that every answer about it has.
    common_head_bytes: usize,
    /// Whether it states no bytes and may have some all the same, as those of /proc do.
    pub may_exceed_stated_size: bool,
    /// Of a page that one of several processes holds, which is not a file of the root.
    _slot: Option<SharedSlot>,
}

/// What answers with a file say of it besides its size and times.
#[derive(Clone, Copy, Debug, Default)]
struct Presentation<'a> {
    /// The name by which it was asked for.
    name: &'a [u8],
    coding: Option<ContentCoding>,
    /// Whether other clients may be sent another representation.
    is_negotiated: bool,
    cache_control: Option<&'a str>,
}

impl Presentation<'_> {
    /// The header fields that every answer has, after those of its validators.
    fn fields(&self) -> String {
        let coding = self.coding.map(|coding| format!("Content-Encoding: {}\r\n", coding.name())).unwrap_or_default();
        let vary = if self.is_negotiated { "Vary: Accept-Encoding\r\n" } else { "" };
        let cache_control = self.cache_control.map(|value| format!("Cache-Control: {value}\r\n")).unwrap_or_default();
        coding + vary + &cache_control
    }
}

impl OpenFile {
    fn new(file: File, identity: FileIdentity, presentation: Presentation<'_>, now: SystemTime) -> Self {
        let mut validators = Validators::from_metadata(identity.size, identity.modified, now);
        if let Some(coding) = presentation.coding {
            validators = validators.of_coding(coding.name());
        }
        let media_type = media_type(presentation.name);
        let modified = httpdate::fmt_http_date(validators.modified);
        let mut head = format!("Last-Modified: {modified}\r\nETag: {}\r\nAccept-Ranges: bytes\r\n", validators.tag);
        head += &presentation.fields();
        let common_head_bytes = head.len();
        head += &format!("Content-Type: {media_type}\r\nContent-Length: {}\r\n\r\n", identity.size);
        let is_exact = || kelvin_sys::fs::kind_of(&file).is_ok_and(FileSystemKind::has_true_sizes);
        let may_exceed_stated_size = identity.size == 0 && !is_exact();
        let (coding, compressed) = (presentation.coding, Vec::new());
        Self {
            file,
            identity,
            validators,
            media_type,
            coding,
            compressed,
            head,
            common_head_bytes,
            may_exceed_stated_size,
            _slot: None,
        }
    }

    /// A page that is in memory alone, and was made at this time. It has the slot until nobody sends it any more.
    ///
    /// # Errors
    /// Those of memfd_create and write.
    pub fn from_text(text: &str, slot: Option<SharedSlot>, now: SystemTime) -> std::io::Result<Self> {
        let mut file = File::from(memfd_create("page", MemfdFlags::CLOEXEC)?);
        file.write_all(text.as_bytes())?;
        let identity = FileIdentity::of_file(&file)?;
        let presentation = Presentation { name: b"page.html", ..Presentation::default() };
        Ok(Self { _slot: slot, ..Self::new(file, identity, presentation, now) })
    }

    /// The header fields that every answer about it has.
    pub fn common_head(&self) -> &[u8] {
        &self.head.as_bytes()[..self.common_head_bytes]
    }

    /// Whether it is still what it was when it was opened.
    pub fn is_unchanged(&self) -> bool {
        FileIdentity::of_file(&self.file).is_ok_and(|identity| identity == self.identity)
    }

    /// Appends all of it, by one read that would also see that it has grown. `false`, and nothing is appended, if it has another
    /// size than when it was opened, or cannot be read.
    pub fn try_append_to(&self, out: &mut Vec<u8>) -> bool {
        let (begin, size) = (out.len(), self.identity.size as usize);
        out.resize(begin + size + 1, 0);
        let read = retry_on_intr(|| pread(&self.file, &mut out[begin..], 0));
        let is_complete = read == Ok(size);
        out.truncate(if is_complete { begin + size } else { begin });
        is_complete
    }

    /// The content of a file that states no bytes; nothing if it has more bytes than this.
    ///
    /// # Errors
    /// Those of pread.
    pub fn read_unstated(&self, max_bytes: usize) -> rustix::io::Result<Option<Vec<u8>>> {
        let mut content = vec![0; max_bytes + 1];
        let mut read = 0;
        while read <= max_bytes {
            match retry_on_intr(|| pread(&self.file, &mut content[read..], read as u64))? {
                0 => break,
                more => read += more,
            }
        }
        content.truncate(read);
        Ok((read <= max_bytes).then_some(content))
    }

    /// The content of a file that states more bytes than it has, as those of /sys do, which state a page; nothing of one that changed, or
    /// that has more bytes than this.
    pub fn read_overstated(&self, max_bytes: usize) -> Option<Vec<u8>> {
        let content = self.read_unstated(max_bytes).ok().flatten()?;
        ((content.len() as u64) < self.identity.size && self.is_unchanged()).then_some(content)
    }
}

impl AsFd for OpenFile {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

/// What a path leads to.
#[derive(Debug)]
pub enum ResolvedPath {
    /// A file.
    File(Arc<OpenFile>),
    /// A directory.
    Directory(DecodedPath),
}

/// The root, and files below it that are held open.
#[derive(Debug)]
pub struct OpenFileCache {
    /// The directory that is served.
    pub root: Arc<DocumentRoot>,
    /// Those that were used since the last time that there were too many, and those that were used before.
    young: HashMap<Box<[u8]>, CacheEntry>,
    old: HashMap<Box<[u8]>, CacheEntry>,
    /// Most files in each of the two.
    capacity: usize,
    /// What others may hold too: it holds only what is left of that.
    pub budget: Arc<FileBudget>,
    /// The name in the root below which it finds nothing.
    pub reserved: Option<&'static [u8]>,
    /// Whether compressed files beside those that are asked for are found as well.
    pub finds_compressed: bool,
    /// What caches are told of files.
    pub cache_rules: Arc<CacheRules>,
    /// The time of day.
    wall_clock: SystemTime,
}

#[derive(Debug)]
struct CacheEntry {
    open_file: Arc<OpenFile>,
    validation_time: Instant,
    permit: FilePermit,
}

impl CacheEntry {
    fn is_fresh(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.validation_time) < REVALIDATE_AFTER
    }
}

/// How many files the threads of a process may still hold open together.
pub type FileBudget = AtomicUsize;

/// To hold files: dropped, others may be held.
#[derive(Debug)]
struct FilePermit {
    budget: Arc<FileBudget>,
    count: usize,
}

impl FilePermit {
    /// This many of what is left.
    fn acquire(budget: &Arc<FileBudget>, count: usize) -> Option<Self> {
        let take = |remaining: usize| remaining.checked_sub(count);
        let result = budget.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take);
        result.is_ok().then(|| Self { budget: Arc::clone(budget), count })
    }
}

impl Drop for FilePermit {
    fn drop(&mut self) {
        self.budget.fetch_add(self.count, Ordering::Relaxed);
    }
}

impl OpenFileCache {
    /// Holds at most this many files.
    pub fn new(root: Arc<DocumentRoot>, max_files: usize) -> Self {
        // Processes that this one forks share what it has read.
        LazyLock::force(&MEDIA_TYPES);
        let ((young, old), budget) = (Default::default(), Arc::new(FileBudget::new(usize::MAX)));
        let (reserved, finds_compressed, cache_rules) = Default::default();
        let (capacity, wall_clock) = (max_files / 2, SystemTime::now());
        Self { root, young, old, capacity, budget, reserved, finds_compressed, cache_rules, wall_clock }
    }

    /// Sets the time of day, which answers have. Where it was set back, files may have been modified later than that.
    pub fn set_wall_clock(&mut self, wall: SystemTime) {
        if wall < self.wall_clock {
            self.clear();
        }
        self.wall_clock = wall;
    }

    /// What a path leads to, as a request has it.
    ///
    /// # Errors
    /// What is answered if it leads to nothing.
    #[inline]
    pub fn lookup(&mut self, path: &str, now: Instant) -> Result<ResolvedPath, StatusCode> {
        match self.young.get(path.as_bytes()) {
            Some(entry) if entry.is_fresh(now) => Ok(ResolvedPath::File(Arc::clone(&entry.open_file))),
            _ => self.resolve(path, now),
        }
    }

    /// Forgets where a path leads to, because what is there was changed.
    pub fn invalidate(&mut self, path: &str) {
        self.young.remove(path.as_bytes());
        self.old.remove(path.as_bytes());
    }

    /// Holds no file any more.
    pub fn clear(&mut self) {
        self.young.clear();
        self.old.clear();
    }

    fn resolve(&mut self, path: &str, now: Instant) -> Result<ResolvedPath, StatusCode> {
        let cached = self.young.remove(path.as_bytes()).or_else(|| self.old.remove(path.as_bytes()));
        let cached = match cached {
            Some(entry) if entry.is_fresh(now) => {
                self.insert(path, (&entry.open_file, entry.validation_time), Some(entry.permit));
                return Ok(ResolvedPath::File(entry.open_file));
            }
            cached => cached,
        };
        let target = DecodedPath::decode(path).ok_or(StatusCode::BAD_REQUEST)?;
        if self.reserved.is_some_and(|name| target.begins_with(name)) {
            return Err(StatusCode::NOT_FOUND);
        }
        let entry = match self.root.find(&target) {
            // Descriptors may be what is lacking, and these are the ones that can be spared.
            Err(StatusCode::SERVICE_UNAVAILABLE) => {
                self.clear();
                self.root.find(&target)?
            }
            entry => entry?,
        };
        let RootEntry::File(file, identity) = entry else { return Ok(ResolvedPath::Directory(target)) };
        let (cached_file, permit) = cached.map(|entry| (entry.open_file, entry.permit)).unzip();
        let compressed = self.find_compressed(&target, &identity);
        let is_same = |open_file: &Arc<OpenFile>| {
            let identities = open_file.compressed.iter().map(|file| &file.identity);
            open_file.identity == identity && identities.eq(compressed.iter().map(|(_, _, identity)| identity))
        };
        let open_file = match cached_file.filter(is_same) {
            Some(open_file) => open_file,
            None => Arc::new(self.open_representations((file, identity), compressed, target.name())),
        };
        self.insert(path, (&open_file, now), permit);
        Ok(ResolvedPath::File(open_file))
    }

    /// The compressed files beside one, which are not older than it: an older one has another content.
    fn find_compressed(&self, target: &DecodedPath, plain: &FileIdentity) -> Vec<(ContentCoding, File, FileIdentity)> {
        if !self.finds_compressed {
            return Vec::new();
        }
        let find = |coding: ContentCoding| match self.root.find(&target.with_ending(coding.ending())) {
            // Programs that compress set the time of the file that they read, some without its fraction.
            Ok(RootEntry::File(file, identity)) if identity.modified.0 >= plain.modified.0 => {
                Some((coding, file, identity))
            }
            _ => None,
        };
        ContentCoding::ALL.into_iter().filter_map(find).collect()
    }

    /// A file that was found, with those in which it is compressed.
    fn open_representations(
        &self,
        (file, identity): (File, FileIdentity),
        compressed: Vec<(ContentCoding, File, FileIdentity)>,
        name: &[u8],
    ) -> OpenFile {
        let (coding, is_negotiated) = (None, !compressed.is_empty());
        let presentation = Presentation { name, coding, is_negotiated, cache_control: self.cache_rules.value(name) };
        let open_compressed = |(coding, file, identity)| {
            let presentation = Presentation { coding: Some(coding), ..presentation };
            Arc::new(OpenFile::new(file, identity, presentation, self.wall_clock))
        };
        let compressed = compressed.into_iter().map(open_compressed).collect();
        OpenFile { compressed, ..OpenFile::new(file, identity, presentation, self.wall_clock) }
    }

    /// Holds a file that was found at this time, by the permit that it had or by a new one.
    fn insert(
        &mut self,
        path: &str,
        (open_file, validation_time): (&Arc<OpenFile>, Instant),
        permit: Option<FilePermit>,
    ) {
        if path.len() > MAX_CACHED_PATH || self.capacity == 0 {
            return;
        }
        let files_per_entry = if self.finds_compressed { 1 + ContentCoding::ALL.len() } else { 1 };
        if self.young.len() >= (self.capacity / files_per_entry).max(1) {
            self.old = std::mem::take(&mut self.young);
        }
        let count = 1 + open_file.compressed.len();
        let permit = permit.filter(|permit| permit.count == count);
        if let Some(permit) = permit.or_else(|| FilePermit::acquire(&self.budget, count)) {
            let entry = CacheEntry { open_file: Arc::clone(open_file), validation_time, permit };
            self.young.insert(path.as_bytes().into(), entry);
        }
    }
}

/// What a file is called whose type is not known: no browser guesses what it is, and none runs it.
pub const DEFAULT_MEDIA_TYPE: &str = "application/octet-stream";

/// A media type in each row, and the endings of its names.
const MEDIA_TYPE_ROWS: &str = include_str!("media_types.txt");

/// Endings of names, and the media type of each.
static MEDIA_TYPES: LazyLock<Vec<(&str, &str)>> = LazyLock::new(|| {
    let rows = MEDIA_TYPE_ROWS.lines().filter_map(|row| row.split_once('\t'));
    rows.flat_map(|(media_type, endings)| endings.split(' ').map(move |ending| (ending, media_type))).collect()
});

/// The type of a file by its name.
pub fn media_type(name: &[u8]) -> &'static str {
    let name = name.rsplit(|&byte| byte == b'/').next().unwrap_or_default();
    let Some(dot) = name.iter().rposition(|&byte| byte == b'.') else { return DEFAULT_MEDIA_TYPE };
    let row = MEDIA_TYPES.iter().find(|(ending, _)| ending.as_bytes().eq_ignore_ascii_case(&name[dot + 1..]));
    row.map_or(DEFAULT_MEDIA_TYPE, |(_, media_type)| media_type)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::*;

    fn files(directory: &Path, capacity: usize) -> OpenFileCache {
        OpenFileCache::new(Arc::new(DocumentRoot::open(directory).unwrap()), capacity)
    }

    fn file(files: &mut OpenFileCache, path: &str, now: Instant) -> Arc<OpenFile> {
        match files.lookup(path, now) {
            Ok(ResolvedPath::File(open_file)) => open_file,
            other => panic!("{path}: {other:?}"),
        }
    }

    #[test]
    fn replaced_file_is_found_after_a_second() {
        let directory = tempfile::tempdir().unwrap();
        let (path, start) = (directory.path().join("a"), Instant::now());
        fs::write(&path, "old").unwrap();
        let mut files = files(directory.path(), 8);
        let first = file(&mut files, "/a", start);
        assert!(Arc::ptr_eq(&first, &file(&mut files, "/a", start)));
        assert!(Arc::ptr_eq(&first, &file(&mut files, "/a", start + REVALIDATE_AFTER)), "resolved again, and the same");
        fs::write(directory.path().join("new"), "newer").unwrap();
        fs::rename(directory.path().join("new"), &path).unwrap();
        assert_eq!(file(&mut files, "/a", start + REVALIDATE_AFTER).identity.size, 3);
        assert_eq!(file(&mut files, "/a", start + 2 * REVALIDATE_AFTER).identity.size, 5);
        fs::remove_file(&path).unwrap();
        assert_eq!(files.lookup("/a", start + 3 * REVALIDATE_AFTER).unwrap_err(), StatusCode::NOT_FOUND);
    }

    #[test]
    fn file_changed_in_place_is_detected() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a");
        fs::write(&path, "old").unwrap();
        let open_file = file(&mut files(directory.path(), 8), "/a", Instant::now());
        let mut out = b"head ".to_vec();
        assert!(open_file.is_unchanged() && open_file.try_append_to(&mut out));
        assert_eq!(out, b"head old");
        for text in ["ol", "older", ""] {
            fs::write(&path, text).unwrap();
            assert!(!open_file.is_unchanged() && !open_file.try_append_to(&mut out), "{text}");
            assert_eq!(out, b"head old");
        }
    }

    #[test]
    fn file_budget_is_shared() {
        let directory = tempfile::tempdir().unwrap();
        (0..4).for_each(|number| fs::write(directory.path().join(number.to_string()), "x").unwrap());
        let (allowance, now) = (Arc::new(FileBudget::new(3)), Instant::now());
        let remaining = || allowance.load(Ordering::Relaxed);
        let budget = || Arc::clone(&allowance);
        let mut caches = [0, 1].map(|_| OpenFileCache { budget: budget(), ..files(directory.path(), 4) });
        let held_count = |files: &OpenFileCache| files.young.len() + files.old.len();
        let [first, second] = &mut caches;
        for number in [0, 1, 0, 1] {
            file(first, &format!("/{number}"), now);
        }
        assert_eq!((held_count(first), remaining()), (2, 1));
        for time in [now, now + REVALIDATE_AFTER, now + 2 * REVALIDATE_AFTER] {
            (0..4).for_each(|number| drop(file(second, &format!("/{number}"), time)));
            assert_eq!((held_count(second), remaining()), (1, 0), "what is looked at again keeps its place");
        }
        first.clear();
        assert_eq!(remaining(), 2);
        (0..4).for_each(|number| drop(file(second, &format!("/{number}"), now + 2 * REVALIDATE_AFTER)));
        assert_eq!(held_count(second) + remaining(), 3);
        drop(caches);
        assert_eq!(remaining(), 3);
    }

    #[test]
    fn cache_capacity_is_bounded() {
        let directory = tempfile::tempdir().unwrap();
        for number in 0..100 {
            fs::write(directory.path().join(number.to_string()), "x").unwrap();
        }
        let (mut files, now) = (files(directory.path(), 8), Instant::now());
        for round in 0..3 {
            for number in 0..100 {
                file(&mut files, &format!("/{number}"), now);
                let first_file = file(&mut files, "/0", now);
                assert!(round == 0 || Arc::strong_count(&first_file) > 1);
                assert!(files.young.len() + files.old.len() <= 8);
            }
        }
        assert!(files.young.contains_key(b"/0".as_slice()) || files.old.contains_key(b"/0".as_slice()));
        file(&mut files, &format!("/{}1", "/".repeat(MAX_CACHED_PATH)), now);
        assert!(files.young.keys().chain(files.old.keys()).all(|path| path.len() <= MAX_CACHED_PATH));
    }

    #[test]
    fn unsized_file_is_read_up_to_bound() {
        let open_file = file(&mut files(Path::new("/proc"), 0), "/version", Instant::now());
        let version = fs::read("/proc/version").unwrap();
        assert_eq!((open_file.identity.size, open_file.is_unchanged()), (0, true));
        assert_eq!(open_file.read_unstated(version.len()), Ok(Some(version.clone())));
        assert_eq!(open_file.read_unstated(version.len() - 1), Ok(None));
    }

    #[test]
    fn overstated_file_is_read_to_end() {
        let directory = Path::new("/sys/kernel/mm/transparent_hugepage");
        let Ok(content) = fs::read(directory.join("enabled")) else {
            return kelvin_testing::MissingRequirement::machine("the kernel has no huge pages")
                .report_skip("a file of /sys");
        };
        let open_file = file(&mut files(directory, 0), "/enabled", Instant::now());
        assert!(open_file.identity.size > content.len() as u64 && open_file.is_unchanged());
        assert_eq!(open_file.read_overstated(content.len()), Some(content.clone()));
        assert_eq!(open_file.read_overstated(content.len() - 1), None);
        let honest = tempfile::tempdir().unwrap();
        fs::write(honest.path().join("a"), "abc").unwrap();
        assert_eq!(file(&mut files(honest.path(), 0), "/a", Instant::now()).read_overstated(99), None);
    }

    #[test]
    fn head_is_built_once() {
        let directory = tempfile::tempdir().unwrap();
        fs::write(directory.path().join("a.txt"), "abc").unwrap();
        let open_file = file(&mut files(directory.path(), 0), "/a%2Etxt", Instant::now());
        let (full_head, common_head) =
            [open_file.head.as_bytes(), open_file.common_head()].map(|head| std::str::from_utf8(head).unwrap()).into();
        assert!(
            full_head.starts_with(common_head)
                && common_head.contains(&format!("ETag: {}\r\n", open_file.validators.tag))
        );
        assert!(full_head.ends_with("Content-Type: text/plain; charset=utf-8\r\nContent-Length: 3\r\n\r\n"));
    }

    #[test]
    fn each_ending_has_one_type() {
        let mut endings: Vec<&str> = MEDIA_TYPES.iter().map(|(ending, _)| *ending).collect();
        let count = endings.len();
        endings.sort_unstable();
        endings.dedup();
        assert_eq!((endings.len(), count), (52, 52));
        let types: Vec<&str> = MEDIA_TYPE_ROWS.lines().filter_map(|row| Some(row.split_once('\t')?.0)).collect();
        assert!(types.is_sorted_by(|first, second| first < second));
    }

    #[test]
    fn last_extension_decides_type() {
        for (name, expected) in [
            ("a.html", "text/html; charset=utf-8"),
            ("A.HTML", "text/html; charset=utf-8"),
            ("a.tar.gz", "application/gzip"),
            ("a", DEFAULT_MEDIA_TYPE),
            ("html", DEFAULT_MEDIA_TYPE),
            ("a.", DEFAULT_MEDIA_TYPE),
            ("a.html/b", DEFAULT_MEDIA_TYPE),
            ("a.exe", DEFAULT_MEDIA_TYPE),
        ] {
            assert_eq!(media_type(name.as_bytes()), expected, "{name}");
        }
    }
}
