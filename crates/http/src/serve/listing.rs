//! Pages that list directories, and how many of them may be held for clients who do not read them.

use std::fmt::Write;
use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, Mutex, Weak};
use std::time::SystemTime;

use http::StatusCode;
use kelvin_sys::shared_slots::SharedSlots;
use rustix::fs::{Dir, FileType};

use crate::serve::decoded_path::{DecodedPath, percent_encode};
use crate::serve::document_root::DocumentRoot;
use crate::serve::open_file_cache::OpenFile;
use kelvin_sys::lock;

/// Most names on a page: a directory of millions must not become memory.
const MAX_NAMES: usize = 10_000;
/// Bytes of a page after which no further name is written.
const MAX_PAGE_BYTES: usize = 512 << 10;
/// Most entries that are looked at for a page, shown or not, since other clients wait meanwhile.
const MAX_SCANNED_ENTRIES: usize = 100_000;

/// Bytes of a page up to which each connection has its own, as it has small files.
const MAX_INLINE_PAGE: usize = 16 << 10;
/// Most different larger pages that a server holds at one time: 32 MiB, and a descriptor each. Of processes each holds its own.
const MAX_HELD_PAGES: u32 = 64;

/// The larger pages that are being sent: a client that does not read one holds no more than others who read it, and all of them together
/// hold no more than [`MAX_HELD_PAGES`].
#[derive(Debug, Default)]
pub struct ListingCache {
    /// One for each page, where several processes hold some.
    slots: Option<Arc<SharedSlots>>,
    /// By a hash of their text that nobody can know before.
    pages: Mutex<Vec<(u64, Weak<OpenFile>)>>,
    random: RandomState,
}

impl ListingCache {
    /// Of a process that is to fork others: all of them together hold no more than the threads of one.
    ///
    /// # Errors
    /// Those of memfd_create.
    pub fn for_processes() -> std::io::Result<Self> {
        Ok(Self { slots: Some(SharedSlots::new(MAX_HELD_PAGES)?), ..Self::default() })
    }

    /// Holds a page that is sent as a file is, to all who ask for the same at one time; nothing if it is so small that it goes with its head.
    ///
    /// # Errors
    /// What is answered if there are too many others.
    pub fn cache_page(&self, text: &str) -> Result<Option<Arc<OpenFile>>, StatusCode> {
        if text.len() <= MAX_INLINE_PAGE {
            return Ok(None);
        }
        let hash = self.random.hash_one(text);
        let mut pages = lock(&self.pages);
        let cached = pages.iter().find(|(page_hash, _)| *page_hash == hash).and_then(|(_, page)| page.upgrade());
        if cached.is_some() {
            return Ok(cached);
        }
        pages.retain(|(_, page)| page.strong_count() > 0);
        let slot = self.slots.as_ref().map(SharedSlots::acquire);
        if pages.len() >= MAX_HELD_PAGES as usize || slot.as_ref().is_some_and(Option::is_none) {
            return Err(StatusCode::SERVICE_UNAVAILABLE);
        }
        let page = OpenFile::from_text(text, slot.flatten(), SystemTime::now());
        let page = page.map(Arc::new).map_err(|_| StatusCode::SERVICE_UNAVAILABLE)?;
        pages.push((hash, Arc::downgrade(&page)));
        Ok(Some(page))
    }
}

/// The page: directories first, each with a slash; hidden files, links and special files are left out.
///
/// # Errors
/// What is answered if the directory cannot be read.
pub fn render_listing(root: &DocumentRoot, target: &DecodedPath) -> Result<String, StatusCode> {
    let directory = root.open_directory(target)?;
    let entries = Dir::new(directory).map_err(|_| StatusCode::INTERNAL_SERVER_ERROR)?;
    let mut names: Vec<(bool, Vec<u8>)> = Vec::new();
    for entry in entries.take(MAX_SCANNED_ENTRIES).flatten() {
        let name = entry.file_name().to_bytes();
        let kind = entry.file_type();
        if matches!(kind, FileType::Directory | FileType::RegularFile) && !name.starts_with(b".") {
            names.push((kind == FileType::Directory, name.to_vec()));
        }
        if names.len() > MAX_NAMES {
            break;
        }
    }
    let is_truncated = names.len() > MAX_NAMES;
    names.truncate(MAX_NAMES);
    names.sort_by(|(is_directory, name), other| (!is_directory, name).cmp(&(!other.0, &other.1)));
    Ok(render_page(target, &names, is_truncated))
}

fn render_page(target: &DecodedPath, names: &[(bool, Vec<u8>)], mut is_truncated: bool) -> String {
    let path = escape_html(&format!("/{}", target.path().display()).replace("/.", "/"));
    let mut page = format!("<!DOCTYPE html>\n<meta charset=\"utf-8\">\n<title>{path}</title>\n<h1>{path}</h1>\n<ul>\n");
    if !target.name().is_empty() {
        page += "<li><a href=\"../\">../</a>\n";
    }
    for (is_directory, name) in names {
        if page.len() > MAX_PAGE_BYTES {
            is_truncated = true;
            break;
        }
        let slash = if *is_directory { "/" } else { "" };
        let mut link = String::new();
        percent_encode(name, &mut link);
        let label = escape_html(&String::from_utf8_lossy(name));
        // Writing into a string cannot fail. The dot keeps a colon in the name from being a scheme.
        let _ = writeln!(page, "<li><a href=\"./{link}{slash}\">{label}{slash}</a>");
    }
    page += "</ul>\n";
    if is_truncated {
        page += "<p>There are more.\n";
    }
    page
}

/// With the characters replaced that mean something to a browser.
fn escape_html(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn listing_escapes_html() {
        let root_directory = tempfile::tempdir().unwrap();
        let directory = root_directory.path().join("s<b>");
        fs::create_dir_all(directory.join("z&z")).unwrap();
        for name in ["a\"b.txt", "javascript:alert(1)", ".hidden", "é %"] {
            fs::write(directory.join(name), "").unwrap();
        }
        std::os::unix::fs::symlink("é %", directory.join("link")).unwrap();
        let root = DocumentRoot::open(root_directory.path()).unwrap();
        let page = render_listing(&root, &DecodedPath::decode("/s%3Cb%3E/").unwrap()).unwrap();
        let expected = "<!DOCTYPE html>\n<meta charset=\"utf-8\">\n<title>/s&lt;b&gt;</title>\n<h1>/s&lt;b&gt;</h1>\n<ul>\n\
                        <li><a href=\"../\">../</a>\n\
                        <li><a href=\"./z%26z/\">z&amp;z/</a>\n\
                        <li><a href=\"./a%22b.txt\">a&quot;b.txt</a>\n\
                        <li><a href=\"./javascript%3Aalert%281%29\">javascript:alert(1)</a>\n\
                        <li><a href=\"./%C3%A9%20%25\">é %</a>\n</ul>\n";
        assert_eq!(page, expected);
        let page = render_listing(&root, &DecodedPath::decode("/").unwrap()).unwrap();
        assert!(
            page.contains("<title>/</title>") && page.contains("<a href=\"./s%3Cb%3E/\">") && !page.contains("../")
        );
    }

    #[test]
    fn large_pages_are_shared_and_bounded() {
        for lists in [ListingCache::default(), ListingCache::for_processes().unwrap()] {
            assert_bounded(&lists);
        }
    }

    fn assert_bounded(lists: &ListingCache) {
        let text = |number: u32| format!("{number}{}", "x".repeat(MAX_INLINE_PAGE));
        let cache_text = |number| lists.cache_page(&text(number)).map(|page| page.unwrap());
        assert!(matches!(lists.cache_page("small"), Ok(None)));
        let first = cache_text(0).unwrap();
        assert!(Arc::ptr_eq(&first, &cache_text(0).unwrap()), "the same for all");
        let mut out = Vec::new();
        assert!(first.try_append_to(&mut out) && out == text(0).as_bytes());
        let pages: Vec<_> = (1..MAX_HELD_PAGES).map(|number| cache_text(number).unwrap()).collect();
        assert_eq!(cache_text(MAX_HELD_PAGES).unwrap_err(), StatusCode::SERVICE_UNAVAILABLE);
        assert!(cache_text(0).is_ok());
        drop(pages);
        assert!(cache_text(MAX_HELD_PAGES).is_ok(), "there is room again");
    }

    #[test]
    fn listing_is_truncated_at_max_names() {
        let root_directory = tempfile::tempdir().unwrap();
        for number in 0..=MAX_NAMES {
            fs::write(root_directory.path().join(number.to_string()), "").unwrap();
        }
        let page =
            render_listing(&DocumentRoot::open(root_directory.path()).unwrap(), &DecodedPath::default()).unwrap();
        assert_eq!(page.matches("<li>").count(), MAX_NAMES);
        assert!(page.ends_with("<p>There are more.\n"));
    }

    #[test]
    fn listing_is_truncated_at_max_bytes() {
        let names: Vec<(bool, Vec<u8>)> = (0..MAX_NAMES).map(|_| (false, vec![b'<'; 255])).collect();
        let page = render_page(&DecodedPath::default(), &names, false);
        assert!(page.len() < MAX_PAGE_BYTES + 4096 && page.ends_with("<p>There are more.\n"), "{}", page.len());
    }
}
