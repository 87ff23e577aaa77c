//! Pages that list directories, and how many of them may be held for clients who do not read them.

use std::fmt::Write;
use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::SystemTime;

use kelvin_sys::places::Places;
use rustix::fs::{Dir, FileType};

use crate::files::{Allowance, Opened, Permit};
use crate::root::Root;
use crate::status::Status;
use crate::target::{Target, encode};

/// Most names on a page: a directory of millions must not become memory.
const MOST: usize = 10_000;
/// Bytes of a page after which no further name is written.
const ENOUGH: usize = 512 << 10;
/// Most entries that are looked at for a page, shown or not, since other clients wait meanwhile.
const LOOKED_AT: usize = 100_000;

/// Bytes of a page up to which each connection has its own, as it has small files.
const SMALL: usize = 16 << 10;
/// Most different larger pages that a server holds at one time: 32 MiB, and a descriptor each. Of processes each holds its own.
const HELD: u32 = 64;

/// A page to be sent.
#[derive(Debug)]
pub enum Page {
    /// It goes with its head.
    Small(String),
    /// It is sent as a file is, to all who ask for the same at one time.
    Held(Arc<Opened>),
}

impl Page {
    /// Its bytes.
    pub fn bytes(&self) -> u64 {
        match self {
            Self::Small(text) => text.len() as u64,
            Self::Held(opened) => opened.identity.size,
        }
    }
}

/// The larger pages that are being sent: whoever does not read one holds no more than others who read it, and all of them together
/// no more than so many.
#[derive(Debug)]
pub struct Lists {
    held: Held,
    /// By a hash of their text that nobody can know before.
    pages: Mutex<Vec<(u64, Weak<Opened>)>>,
    random: RandomState,
}

/// How many are held.
#[derive(Debug)]
enum Held {
    /// By the threads of this process.
    Threads(Arc<Allowance>),
    /// By processes, each of which may be killed.
    Processes(Arc<Places>),
}

impl Held {
    /// One more, if it may be.
    fn permit(&self) -> Option<Permit> {
        match self {
            Self::Threads(allowance) => allowance.permit(),
            Self::Processes(places) => places.take().map(Permit::Processes),
        }
    }
}

impl Default for Lists {
    fn default() -> Self {
        Self::held(Held::Threads(Allowance::of(HELD as usize)))
    }
}

impl Lists {
    /// Of a process that is to fork others: all of them together hold no more than the threads of one.
    ///
    /// # Errors
    /// Those of memfd_create.
    pub fn of_processes() -> std::io::Result<Self> {
        Places::new(HELD).map(|places| Self::held(Held::Processes(places)))
    }

    fn held(held: Held) -> Self {
        Self { held, pages: Mutex::default(), random: RandomState::new() }
    }

    /// Has a page be sent.
    ///
    /// # Errors
    /// What is answered if there are too many others.
    pub fn hold(&self, text: String) -> Result<Page, Status> {
        if text.len() <= SMALL {
            return Ok(Page::Small(text));
        }
        let hash = self.random.hash_one(&text);
        let mut pages = self.pages.lock().unwrap_or_else(PoisonError::into_inner);
        let same = pages.iter().find(|(other, _)| *other == hash).and_then(|(_, page)| page.upgrade());
        if let Some(page) = same {
            return Ok(Page::Held(page));
        }
        pages.retain(|(_, page)| page.strong_count() > 0);
        let permit = self.held.permit().ok_or(Status::ServiceUnavailable)?;
        let page = Opened::page(&text, permit, SystemTime::now()).map_err(|_| Status::ServiceUnavailable)?;
        let page = Arc::new(page);
        pages.push((hash, Arc::downgrade(&page)));
        Ok(Page::Held(page))
    }
}

/// The page: directories first, each with a slash; hidden files, links and special files are left out.
///
/// # Errors
/// What is answered if the directory cannot be read.
pub fn of(root: &Root, target: &Target) -> Result<String, Status> {
    let directory = root.open_directory(target)?;
    let entries = Dir::new(directory).map_err(|_| Status::InternalServerError)?;
    let mut names: Vec<(bool, Vec<u8>)> =
        entries.take(LOOKED_AT).flatten().filter_map(|entry| shown(&entry)).take(MOST + 1).collect();
    let is_cut = names.len() > MOST;
    names.truncate(MOST);
    names.sort_by(|(is_directory, name), other| (!is_directory, name).cmp(&(!other.0, &other.1)));
    Ok(page(target, &names, is_cut))
}

/// Whether an entry is a directory, and its name, if it is shown.
fn shown(entry: &rustix::fs::DirEntry) -> Option<(bool, Vec<u8>)> {
    let name = entry.file_name().to_bytes();
    let is_directory = match entry.file_type() {
        FileType::Directory => true,
        FileType::RegularFile => false,
        _ => return None,
    };
    (!name.starts_with(b".")).then(|| (is_directory, name.to_vec()))
}

fn page(target: &Target, names: &[(bool, Vec<u8>)], mut is_cut: bool) -> String {
    let path = escaped(&format!("/{}", target.path().display()).replace("/.", "/"));
    let mut page = format!("<!DOCTYPE html>\n<meta charset=\"utf-8\">\n<title>{path}</title>\n<h1>{path}</h1>\n<ul>\n");
    if !target.name().is_empty() {
        page += "<li><a href=\"../\">../</a>\n";
    }
    for (is_directory, name) in names {
        if page.len() > ENOUGH {
            is_cut = true;
            break;
        }
        let slash = if *is_directory { "/" } else { "" };
        let mut link = String::new();
        encode(name, &mut link);
        let shown = escaped(&String::from_utf8_lossy(name));
        // Writing into a string cannot fail. The dot keeps a colon in the name from being a scheme.
        let _ = writeln!(page, "<li><a href=\"./{link}{slash}\">{shown}{slash}</a>");
    }
    page += "</ul>\n";
    if is_cut {
        page += "<p>There are more.\n";
    }
    page
}

/// With the characters replaced that mean something to a browser.
fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn a_directory_is_listed_with_names_that_mean_nothing_to_a_browser() {
        let top = tempfile::tempdir().unwrap();
        let directory = top.path().join("s<b>");
        fs::create_dir_all(directory.join("z&z")).unwrap();
        for name in ["a\"b.txt", "javascript:alert(1)", ".hidden", "é %"] {
            fs::write(directory.join(name), "").unwrap();
        }
        std::os::unix::fs::symlink("é %", directory.join("link")).unwrap();
        let root = Root::open(top.path()).unwrap();
        let page = of(&root, &Target::decode("/s%3Cb%3E/").unwrap()).unwrap();
        let expected = "<!DOCTYPE html>\n<meta charset=\"utf-8\">\n<title>/s&lt;b&gt;</title>\n<h1>/s&lt;b&gt;</h1>\n<ul>\n\
                        <li><a href=\"../\">../</a>\n\
                        <li><a href=\"./z%26z/\">z&amp;z/</a>\n\
                        <li><a href=\"./a%22b.txt\">a&quot;b.txt</a>\n\
                        <li><a href=\"./javascript%3Aalert%281%29\">javascript:alert(1)</a>\n\
                        <li><a href=\"./%C3%A9%20%25\">é %</a>\n</ul>\n";
        assert_eq!(page, expected);
        let page = of(&root, &Target::decode("/").unwrap()).unwrap();
        assert!(
            page.contains("<title>/</title>") && page.contains("<a href=\"./s%3Cb%3E/\">") && !page.contains("../")
        );
    }

    #[test]
    fn larger_pages_are_held_once_and_no_more_than_so_many() {
        for lists in [Lists::default(), Lists::of_processes().unwrap()] {
            no_more_than_so_many(&lists);
        }
    }

    fn no_more_than_so_many(lists: &Lists) {
        let text = |number: u32| format!("{number}{}", "x".repeat(SMALL));
        let hold = |number| match lists.hold(text(number)) {
            Ok(Page::Held(page)) => Ok(page),
            Ok(page) => panic!("{page:?}"),
            Err(status) => Err(status),
        };
        assert!(matches!(lists.hold("small".into()), Ok(Page::Small(_))));
        let first = hold(0).unwrap();
        assert!(Arc::ptr_eq(&first, &hold(0).unwrap()), "the same for all");
        let mut out = Vec::new();
        assert!(first.append_to(&mut out) && out == text(0).as_bytes());
        let others: Vec<_> = (1..HELD).map(|number| hold(number).unwrap()).collect();
        assert_eq!(hold(HELD).unwrap_err(), Status::ServiceUnavailable);
        assert!(hold(0).is_ok());
        drop(others);
        assert!(hold(HELD).is_ok(), "there is room again");
    }

    #[test]
    fn a_page_has_an_end() {
        let top = tempfile::tempdir().unwrap();
        for number in 0..=MOST {
            fs::write(top.path().join(number.to_string()), "").unwrap();
        }
        let page = of(&Root::open(top.path()).unwrap(), &Target::default()).unwrap();
        assert_eq!(page.matches("<li>").count(), MOST);
        assert!(page.ends_with("<p>There are more.\n"));
    }

    #[test]
    fn long_names_make_no_large_page() {
        let names: Vec<(bool, Vec<u8>)> = (0..MOST).map(|_| (false, vec![b'<'; 255])).collect();
        let page = page(&Target::default(), &names, false);
        assert!(page.len() < ENOUGH + 4096 && page.ends_with("<p>There are more.\n"), "{}", page.len());
    }
}
