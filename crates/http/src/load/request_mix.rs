//! Kinds of requests that a load mixes by their weights, and the file that describes them.
//!
//! The file is TOML: a table `[[request]]` of each kind, with `path` or `paths`, and, where it needs them, `name`, `weight`, `method`,
//! `headers`, and `body` or `body_file`.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use http::uri::PathAndQuery;
use serde::Deserialize;
use toml::Spanned;

use crate::load::request::{RequestTemplate, parse_header, parse_method};

/// Most kinds: each has a histogram on every thread.
const MAX_KINDS: usize = 100;

/// Largest weight.
const MAX_WEIGHT: f64 = 1e9;

/// A kind of request.
#[derive(Clone, Debug)]
pub struct RequestKind {
    /// What it is called.
    pub name: String,
    /// How often it is sent, relative to the weights of the others.
    pub weight: f64,
    /// What is sent with each.
    pub template: RequestTemplate,
    /// Path and query of each, at least one; all are equally likely.
    pub paths: Vec<String>,
}

/// The file as it is written.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct MixFile {
    #[serde(default)]
    request: Vec<Spanned<RequestEntry>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RequestEntry {
    name: Option<Spanned<String>>,
    weight: Option<Spanned<f64>>,
    path: Option<Spanned<String>>,
    paths: Option<Spanned<Vec<Spanned<String>>>>,
    method: Option<Spanned<String>>,
    #[serde(default)]
    headers: BTreeMap<String, Spanned<String>>,
    body: Option<String>,
    body_file: Option<Spanned<PathBuf>>,
}

/// What is wrong with a field, and where in the text it is.
struct FieldError {
    position: usize,
    text: String,
}

impl FieldError {
    fn new<T>(field: &Spanned<T>, name: &str, text: impl std::fmt::Display) -> Self {
        Self { position: field.span().start, text: format!("{name}: {text}") }
    }
}

/// Reads the kinds of a mix; each has what `template` states, unless it states it itself. `read_body` reads a named file.
///
/// # Errors
/// The line and the field that are wrong, in words.
pub fn parse_request_mix(
    text: &str,
    template: &RequestTemplate,
    read_body: &dyn Fn(&Path) -> io::Result<Vec<u8>>,
) -> Result<Vec<RequestKind>, String> {
    let at_line = |position: usize, message: &str| {
        format!(
            "line {}: {message}",
            1 + text.as_bytes()[..position.min(text.len())].iter().filter(|&&byte| byte == b'\n').count()
        )
    };
    let file: MixFile = toml::from_str(text).map_err(|error| {
        let message = error.message().lines().collect::<Vec<_>>().join(" ");
        error.span().map_or_else(|| message.clone(), |span| at_line(span.start, &message))
    })?;
    if file.request.is_empty() {
        return Err("it has no requests: give a [[request]] with a path".into());
    }
    if let Some(beyond) = file.request.get(MAX_KINDS) {
        return Err(at_line(beyond.span().start, &format!("there are more than {MAX_KINDS} kinds of requests")));
    }
    let mut kinds: Vec<RequestKind> = Vec::new();
    for entry in &file.request {
        let kind = request_kind(entry, template, read_body).map_err(|error| at_line(error.position, &error.text))?;
        if kinds.iter().any(|other| other.name == kind.name) {
            let message = format!("name: {} is the name of two requests: give each its own", kind.name);
            return Err(at_line(entry.span().start, &message));
        }
        kinds.push(kind);
    }
    if kinds.iter().all(|kind| kind.weight == 0.0) {
        return Err("weight: that of every request is 0: give one a larger weight".into());
    }
    Ok(kinds)
}

fn request_kind(
    spanned: &Spanned<RequestEntry>,
    template: &RequestTemplate,
    read_body: &dyn Fn(&Path) -> io::Result<Vec<u8>>,
) -> Result<RequestKind, FieldError> {
    let entry = spanned.get_ref();
    let paths: Vec<&Spanned<String>> = match (&entry.path, &entry.paths) {
        (Some(path), None) => vec![path],
        (None, Some(paths)) if !paths.get_ref().is_empty() => paths.get_ref().iter().collect(),
        (None, Some(paths)) => return Err(FieldError::new(paths, "paths", "give at least one")),
        (Some(_), Some(paths)) => return Err(FieldError::new(paths, "paths", "leave it out, or path")),
        (None, None) => return Err(FieldError::new(spanned, "path", "it is missing")),
    };
    let weight = entry.weight.as_ref().map_or(1.0, |weight| *weight.get_ref());
    if let Some(field) = entry.weight.as_ref().filter(|_| !(0.0..=MAX_WEIGHT).contains(&weight)) {
        return Err(FieldError::new(field, "weight", format_args!("it must be a number from 0 to {MAX_WEIGHT}")));
    }
    let template = entry_template(entry, template, read_body)?;
    let name = match &entry.name {
        Some(name) if name.get_ref().trim().is_empty() => return Err(FieldError::new(name, "name", "it is empty")),
        Some(name) => name.get_ref().clone(),
        None => format!("{} {}", template.method, paths[0].get_ref()),
    };
    let paths = paths.into_iter().map(valid_path).collect::<Result<_, _>>()?;
    Ok(RequestKind { name, weight, template, paths })
}

/// What is sent with each request of an entry.
fn entry_template(
    entry: &RequestEntry,
    default: &RequestTemplate,
    read_body: &dyn Fn(&Path) -> io::Result<Vec<u8>>,
) -> Result<RequestTemplate, FieldError> {
    let mut template = default.clone();
    if let Some(method) = &entry.method {
        template.method = parse_method(method.get_ref()).map_err(|error| FieldError::new(method, "method", error))?;
    }
    for (name, value) in &entry.headers {
        let header = parse_header(&format!("{name}: {}", value.get_ref()))
            .map_err(|error| FieldError::new(value, &format!("headers.{name}"), error))?;
        template.headers.retain(|(other, _)| *other != header.0);
        template.headers.push(header);
    }
    match (&entry.body, &entry.body_file) {
        (Some(_), Some(file)) => return Err(FieldError::new(file, "body_file", "leave it out, or body")),
        (Some(body), None) => template.body = body.clone().into_bytes(),
        (None, Some(file)) => {
            let path = file.get_ref();
            template.body = read_body(path)
                .map_err(|error| FieldError::new(file, "body_file", format_args!("{}: {error}", path.display())))?;
        }
        (None, None) => {}
    }
    Ok(template)
}

/// A path that can be sent.
fn valid_path(field: &Spanned<String>) -> Result<String, FieldError> {
    let path = field.get_ref();
    let is_valid = path.starts_with('/') && path.parse::<PathAndQuery>().is_ok_and(|parsed| parsed.as_str() == path);
    if is_valid {
        Ok(path.clone())
    } else {
        Err(FieldError::new(
            field,
            "path",
            format_args!("{path:?} is no path of a URL: begin with /, and write a space as %20"),
        ))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::load::tests::damaged;

    const SHOP: &str = r#"# A shop.
[[request]]
name = "list"
weight = 80
paths = ["/items?page=1", "/items?page=2"]

[[request]]
weight = 20.5
method = "POST"
path = "/orders"
headers = { Content-Type = "application/json", accept = "*/*" }
body = '{"item": 1}'

[[request]]
name = "file"
path = "/upload"
method = "PUT"
body_file = "data.bin"
"#;

    fn parse(text: &str) -> Result<Vec<RequestKind>, String> {
        let read_body = |path: &Path| match path.to_str() {
            Some("data.bin") => Ok(b"data".to_vec()),
            _ => Err(io::Error::from(io::ErrorKind::NotFound)),
        };
        let headers = vec![parse_header("Accept: text/html").unwrap(), parse_header("X: y").unwrap()];
        parse_request_mix(text, &RequestTemplate { headers, ..RequestTemplate::default() }, &read_body)
    }

    #[test]
    fn kinds_have_their_own_fields_or_those_of_all() {
        let [list, order, file] = &parse(SHOP).unwrap()[..] else { panic!("three kinds") };
        assert_eq!((&*list.name, list.weight, list.paths.len(), list.template.headers.len()), ("list", 80.0, 2, 2));
        assert_eq!((&*order.name, order.weight, &*order.paths[0]), ("POST /orders", 20.5, "/orders"));
        assert_eq!(order.template.body, b"{\"item\": 1}");
        let headers: Vec<String> =
            order.template.headers.iter().map(|(name, value)| format!("{name}={value:?}")).collect();
        assert_eq!(headers, ["x=\"y\"", "content-type=\"application/json\"", "accept=\"*/*\""]);
        assert_eq!((file.weight, &file.template.body[..], file.template.method.as_str()), (1.0, &b"data"[..], "PUT"));
    }

    #[test]
    fn line_and_field_of_a_mistake_are_named() {
        for (text, expected) in [
            ("", "it has no requests"),
            ("[[request]]\nweight = 1\n", "line 1: path: it is missing"),
            ("[[request]]\npath = '/'\nwieght = 1\n", "line 3: unknown field `wieght`"),
            ("[[request]]\npath = '/'\nweight = -1\n", "line 3: weight: it must be a number from 0"),
            ("[[request]]\npath = '/'\nweight = nan\n", "line 3: weight: it must be"),
            ("[[request]]\npath = '/'\nweight = 'many'\n", "line 3: invalid type"),
            ("[[request]]\npath = '/'\nweight = 0\n", "weight: that of every request is 0"),
            ("\n[[request]]\npath = 'a b'\n", "line 3: path: \"a b\" is no path of a URL"),
            ("[[request]]\npaths = ['/', 'x']\n", "line 2: path: \"x\""),
            ("[[request]]\npaths = []\n", "line 2: paths: give at least one"),
            ("[[request]]\npaths = ['/']\npath = '/'\n", "line 2: paths: leave it out"),
            ("[[request]]\npath = '/'\nmethod = 'G T'\n", "line 3: method: give a method"),
            ("[[request]]\npath = '/'\nheaders = { a = \"b\\nc\" }\n", "line 3: headers.a: give a name"),
            ("[[request]]\npath = '/'\nheaders = { Content-Length = '5' }\n", "line 3: headers.Content-Length: a body"),
            ("[[request]]\npath = '/'\nbody_file = 'none'\n", "line 3: body_file: none: entity not found"),
            ("[[request]]\npath = '/'\nbody_file = 'data.bin'\nbody = ''\n", "line 3: body_file: leave it out"),
            ("[[request]]\npath = '/'\n[[request]]\npath = '/'\n", "line 3: name: GET / is the name of two"),
            ("[[request]\n", "line 1: "),
        ] {
            let error = parse(text).unwrap_err();
            assert!(error.starts_with(expected) && !error.contains('\n'), "{text:?}: {error}");
        }
        let many = "[[request]]\npath = '/'\n".repeat(MAX_KINDS + 1);
        assert_eq!(parse(&many).unwrap_err(), "line 201: there are more than 100 kinds of requests");
    }

    proptest! {
        /// A damaged file is a mix whose requests can be sent, or one line of a reason.
        #[test]
        fn damaged_mix_is_sendable_or_refused(text in damaged(SHOP)) {
            match parse(&text) {
                Ok(kinds) => {
                    prop_assert!(kinds.iter().all(|kind| !kind.paths.is_empty() && (0.0..=MAX_WEIGHT).contains(&kind.weight)));
                    let paths = kinds.iter().flat_map(|kind| &kind.paths);
                    prop_assert!(paths.into_iter().all(|path| path.starts_with('/') && !path.contains([' ', '\r', '\n'])));
                }
                Err(reason) => prop_assert!(!reason.is_empty() && !reason.contains('\n')),
            }
        }
    }
}
