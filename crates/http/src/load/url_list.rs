//! The list of files that are asked for, and the directory that holds them.

use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::path::Path;

use http::uri::PathAndQuery;
use kelvin_sys::fs::open_to_read;
use percent_encoding::percent_decode_str;

use crate::load::server_url::ServerUrl;
use crate::load::verify::{ExpectedBody, Verify};

/// The server and the files of a list: a path or a URL of the server in each line. Empty lines and those that begin with # count
/// for nothing.
///
/// # Errors
/// The first line that is wrong, in words.
pub fn parse_url_list(text: &str, server: Option<ServerUrl>) -> Result<(ServerUrl, Vec<String>), String> {
    let mut server = server;
    let mut paths = Vec::new();
    // Editors of other systems begin a text with a mark of its encoding.
    for (number, line) in text.trim_start_matches('\u{feff}').lines().enumerate() {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        paths.push(parse_line(line, &mut server).map_err(|error| format!("line {}: {error}", number + 1))?);
    }
    let server = server.filter(|_| !paths.is_empty()).ok_or("it names no file: give a path or a URL in each line")?;
    Ok((server, paths))
}

/// The path of one line, whose server must be that of the others.
fn parse_line(line: &str, server: &mut Option<ServerUrl>) -> Result<String, String> {
    if line.contains("://") {
        let target: ServerUrl = line.parse()?;
        let server = server.get_or_insert_with(|| target.clone());
        if !target.is_same_server(server) {
            return Err(format!("{line} is not of the server {}: one load has one server", server.authority));
        }
        return Ok(target.path);
    }
    if server.is_none() {
        return Err(format!("{line} is a path without a server: give its URL as well, or a URL in each line"));
    }
    let path = if line.starts_with('/') { line.to_owned() } else { format!("/{line}") };
    let invalid_line = || format!("{line} is no path of a URL: write a space as %20");
    path.parse::<PathAndQuery>().ok().filter(|parsed| parsed.as_str() == path).map(|_| path).ok_or_else(invalid_line)
}

/// The right bodies of paths, from the files below a directory.
///
/// # Errors
/// A path that is no file there.
pub fn expected_bodies(root: &Path, paths: &[String], verify: Verify) -> Result<Vec<Option<ExpectedBody>>, String> {
    let read = |path: &String| {
        let path = path.split('?').next().unwrap_or(path);
        let file = root.join(OsString::from_vec(percent_decode_str(path.trim_start_matches('/')).collect()));
        let body = open_to_read(&file).and_then(|mut open| ExpectedBody::from_reader(&mut open, verify));
        body.map(Some).map_err(|error: io::Error| format!("{}: {error}", file.display()))
    };
    paths.iter().map(read).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn list_takes_paths_or_urls_of_one_server() {
        let server: ServerUrl = "http://a:81/".parse().unwrap();
        let (target, paths) =
            parse_url_list("# comment\n/x\n\n y?z=1 \nhttp://a:81/w\n", Some(server.clone())).unwrap();
        assert_eq!((target, paths), (server, vec!["/x".into(), "/y?z=1".into(), "/w".into()]));
        let (target, paths) = parse_url_list("http://a/x\n/y\n", None).unwrap();
        assert_eq!((&*target.host, paths.len()), ("a", 2));
    }

    #[test]
    fn invalid_line_is_named() {
        let server: ServerUrl = "http://a/".parse().unwrap();
        let parse_error = |text: &str, server: Option<&ServerUrl>| parse_url_list(text, server.cloned()).unwrap_err();
        assert!(parse_error("/x\n", None).starts_with("line 1: /x is a path without a server"));
        assert!(parse_error("/x\nhttp://b/y", Some(&server)).starts_with("line 2: http://b/y is not of the server a"));
        assert!(parse_error("/a b", Some(&server)).contains("%20"));
        assert!(parse_error("# nothing\n", Some(&server)).contains("names no file"));
    }

    #[test]
    fn expected_bodies_come_from_directory() {
        let root = tempfile::tempdir().unwrap();
        std::fs::write(root.path().join("a b"), b"content").unwrap();
        let bodies = expected_bodies(root.path(), &["/a%20b?c".into()], Verify::Content).unwrap();
        assert_eq!(bodies, [Some(ExpectedBody { length: 7, hash: Some(kelvin_transfer::wire::hash(b"content")) })]);
        assert!(
            expected_bodies(root.path(), &["/none".into()], Verify::Content)
                .unwrap_err()
                .contains("none: No such file")
        );
    }
}
