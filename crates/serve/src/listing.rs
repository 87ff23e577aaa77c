//! A page that lists a directory.

use std::fmt::Write;

use rustix::fs::{Dir, FileType};

use crate::root::Root;
use crate::status::Status;
use crate::target::{Target, encode};

/// Most names on a page: a directory of millions must not become memory.
const MOST: usize = 10_000;
/// Bytes of a page after which no further name is written: whoever asks for pages and does not read them has them kept.
const ENOUGH: usize = 512 << 10;
/// Most entries that are looked at for a page, shown or not, since other clients wait meanwhile.
const LOOKED_AT: usize = 100_000;

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
