//! URLs of servers as text: their scheme, and what of them is not to be seen.

/// What a URL of a server begins with.
pub(crate) const URL_SCHEMES: [&str; 2] = ["postgres://", "postgresql://"];

/// What stands for a password that is not shown.
const PASSWORD_MASK: &str = "…";

/// A part of a URL with what is written as `%41` decoded; `None` if that is no text.
pub(crate) fn percent_decoded(part: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(part.len());
    let mut rest = part.as_bytes();
    while let Some((&byte, tail)) = rest.split_first() {
        let hexadecimal = tail.get(..2).filter(|_| byte == b'%').and_then(|digits| std::str::from_utf8(digits).ok());
        match hexadecimal.and_then(|digits| u8::from_str_radix(digits, 16).ok()) {
            Some(decoded) => {
                bytes.push(decoded);
                rest = &tail[2..];
            }
            None => {
                bytes.push(byte);
                rest = tail;
            }
        }
    }
    String::from_utf8(bytes).ok()
}

/// A text with every password in URLs of servers left out, whether or not they are well-formed.
pub fn without_password(text: &str) -> String {
    let Some((start, scheme)) = URL_SCHEMES.iter().filter_map(|scheme| Some((text.find(scheme)?, scheme))).min() else {
        return text.to_owned();
    };
    let (prefix, url) = text.split_at(start + scheme.len());
    let end = url.find(|letter: char| letter.is_whitespace() || "'\"`".contains(letter)).unwrap_or(url.len());
    let (url, tail) = url.split_at(end);
    let masked_url = match (url.find(':'), url.rfind('@')) {
        (Some(colon), Some(start)) if colon < start => {
            format!("{}:{PASSWORD_MASK}{}", &url[..colon], &url[start..])
        }
        _ => url.to_owned(),
    };
    let parts: Vec<&str> = masked_url.split_inclusive(['?', '&']).collect();
    let option = |part: &&str| match part.split_once('=') {
        Some((key, value)) if percent_decoded(key).is_some_and(|key| key.eq_ignore_ascii_case("password")) => {
            format!("{key}={PASSWORD_MASK}{}", if value.ends_with('&') { "&" } else { "" })
        }
        _ => (*part).to_owned(),
    };
    format!("{prefix}{}{}", parts.iter().map(option).collect::<String>(), without_password(tail))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passwords_are_masked_in_any_text() {
        for (text, masked) in [
            ("run --store postgres://u:p@h/d --x", "run --store postgres://u:…@h/d --x"),
            (
                "'postgresql://u:a:b/c@d@h/d?password=x&sslmode=require' and postgres://v:q@i/e",
                "'postgresql://u:…@h/d?password=…&sslmode=require' and postgres://v:…@i/e",
            ),
            ("postgres://u@h/d?p%61ssword=x&a=b", "postgres://u@h/d?p%61ssword=…&a=b"),
            ("postgres://u@h/d?%70%61%73%73%77%6F%72%64=x", "postgres://u@h/d?%70%61%73%73%77%6F%72%64=…"),
            ("postgres://u@h/d?a=password&%zz=1", "postgres://u@h/d?a=password&%zz=1"),
            ("postgres://u@h/d", "postgres://u@h/d"),
            ("postgres://h:5432/d", "postgres://h:5432/d"),
            ("nothing", "nothing"),
        ] {
            assert_eq!(without_password(text), masked);
        }
    }
}
