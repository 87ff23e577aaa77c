//! The one JSON object that a program wrote, alone in its file or with text around it.

use serde::Deserialize;
use serde_json::value::RawValue;

/// Most places at which an object may begin and not end: text of a user has a few, a hostile file has millions.
const MAX_OBJECT_STARTS: usize = 64;

/// The only object in a text for which `is_signed` holds, with any text before and after it.
///
/// # Errors
/// If there is none, or several, in words.
pub(crate) fn only_object(text: &str, is_signed: fn(&str) -> bool) -> Result<&str, String> {
    let mut objects = signed_objects(text, is_signed)?;
    match objects.len() {
        1 => Ok(objects.remove(0)),
        0 => Err("it holds no JSON object that names the program and its version".into()),
        count => Err(format!("it holds {count} results: keep one of them, alone in its file")),
    }
}

/// Whether a text is such an object, and nothing else.
pub(crate) fn is_only_object(text: &str, is_signed: fn(&str) -> bool) -> bool {
    let text = text.trim();
    text.starts_with('{') && is_signed(text)
}

fn signed_objects(text: &str, is_signed: fn(&str) -> bool) -> Result<Vec<&str>, String> {
    let mut objects = Vec::new();
    let mut first_error: Option<String> = None;
    let (mut position, mut start_count) = (0, 0);
    while position < text.len() {
        let rest = &text[position..];
        let line = rest.lines().next().unwrap_or_default();
        let next_line = position + line.len() + usize::from(rest.len() > line.len());
        let indent = line.len() - line.trim_start().len();
        if !line.trim_start().starts_with('{') || start_count >= MAX_OBJECT_STARTS {
            position = next_line.max(position + 1);
            continue;
        }
        let start = position + indent;
        match serde_json::Deserializer::from_str(&text[start..]).into_iter::<&RawValue>().next() {
            Some(Ok(object)) => {
                if is_signed(object.get()) {
                    objects.push(object.get());
                }
                position = start + object.get().len();
            }
            Some(Err(error)) => {
                start_count += 1;
                let line = text[..start].lines().count() + error.line();
                first_error.get_or_insert_with(|| {
                    format!("its JSON is broken near line {line}: {}", error_without_position(&error))
                });
                position = next_line.max(position + 1);
            }
            None => position = text.len(),
        }
    }
    match (objects.is_empty(), first_error) {
        (true, Some(problem)) => Err(problem),
        _ => Ok(objects),
    }
}

/// What is wrong, without the place, which is counted from where the object begins.
fn error_without_position(error: &serde_json::Error) -> String {
    let text = error.to_string();
    text.split(" at line ").next().unwrap_or_default().to_owned()
}

/// A text from its first line that begins with these words: what a program wrote behind warnings.
///
/// # Errors
/// If no line does, or several do, in words.
pub(crate) fn from_line<'a>(text: &'a str, prefix: &str) -> Result<&'a str, String> {
    let mut starts = text
        .match_indices(prefix)
        .map(|(start, _)| start)
        .filter(|start| text[..*start].ends_with('\n') || *start == 0);
    let first = starts.next().ok_or_else(|| format!("no line begins with {prefix:?}"))?;
    match starts.count() {
        0 => Ok(&text[first..]),
        other_count => Err(format!("it holds {} results: keep one of them, alone in its file", other_count + 1)),
    }
}

/// Whether an object deserializes to something: what programs sign with.
pub(crate) fn deserializes_to<'a, T: Deserialize<'a>>(text: &'a str, predicate: impl Fn(&T) -> bool) -> bool {
    kelvin_core::json::from_str::<T>(text).is_ok_and(|value| predicate(&value))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_signed(text: &str) -> bool {
        text.contains("signed")
    }

    #[test]
    fn object_is_found_in_other_text() {
        let object = "{\n \"signed\": {\"a\": [1]}\n}";
        for text in [
            object.to_owned(),
            format!("warning\n{object}\nend {{\n"),
            format!("{{\"another\": 1}}\n  {object}"),
            format!("{{ a job }}\r\n{object}"),
        ] {
            assert_eq!(only_object(&text, is_signed), Ok(object), "{text}");
        }
        assert!(is_only_object(object, is_signed) && !is_only_object("x\n{\"signed\": 1}", is_signed));
    }

    #[test]
    fn missing_repeated_or_broken_object_is_error() {
        let read_error = |text: &str| only_object(text, is_signed).unwrap_err();
        assert_eq!(read_error("nothing"), "it holds no JSON object that names the program and its version");
        assert_eq!(
            read_error("{\"signed\": 1}\n{\"signed\": 2}"),
            "it holds 2 results: keep one of them, alone in its file"
        );
        let broken = read_error("a\n{\"signed\": 1,\nwarning\n}");
        assert!(broken.starts_with("its JSON is broken near line 3: "), "{broken}");
        assert!(read_error(&"{\"a\":\n".repeat(5_000)).starts_with("its JSON is broken"));
    }

    #[test]
    fn text_begins_at_signature_line() {
        assert_eq!(from_line("WARNING: a\nprogram 1\nx", "program "), Ok("program 1\nx"));
        assert_eq!(from_line("program 1\n", "program "), Ok("program 1\n"));
        assert!(from_line("a program 1\n", "program ").is_err());
        assert!(from_line("program 1\nprogram 2\n", "program ").unwrap_err().contains("2 results"));
    }
}
