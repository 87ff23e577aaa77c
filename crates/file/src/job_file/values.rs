//! Values of options, as fio reads them: sizes by powers of 1024, times in seconds, lists of one value for reads and one for writes.

use std::time::Duration;

use crate::workload::{BlockSizes, ByDirection};

/// The prefixes of a size: each is 1024 times the one before.
const SIZE_PREFIXES: &str = "kmgtp";

/// The longest time: a year.
const MAX_SECONDS: u64 = 366 * 86_400;

/// The digits at the beginning of a value, and what follows them in lower case.
fn split_number(text: &str) -> Option<(u64, String)> {
    let digits = text.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(text.len());
    let (number, suffix) = text.split_at(digits);
    Some((number.parse().ok()?, suffix.to_ascii_lowercase()))
}

/// A number of bytes: 4096, 4k or 4kb.
pub(super) fn size(text: &str) -> Result<u64, String> {
    const SYNTAX: &str = "a size is a whole number of bytes, such as 4096, 4k (4096) or 1g";
    let (number, suffix) = split_number(text).ok_or(SYNTAX)?;
    if suffix == "%" {
        return Err("a share of a file is not supported: give a number of bytes".into());
    }
    let Some(prefix) = suffix.chars().next() else { return Ok(number) };
    let power = SIZE_PREFIXES.find(prefix).ok_or(SYNTAX)? as u32 + 1;
    match &suffix[1..] {
        "" | "b" | "i" => {}
        "ib" => {
            return Err(format!(
                "fio reads {text} as a power of 1000 unless kb_base=1000: write {number}{prefix} for powers of 1024"
            ));
        }
        _ => return Err(SYNTAX.into()),
    }
    number
        .checked_mul(1024u64.pow(power))
        .filter(|&bytes| i64::try_from(bytes).is_ok())
        .ok_or_else(|| "it is more than any file has".into())
}

/// A time: seconds, or a number with a unit.
pub(super) fn time(text: &str) -> Result<Duration, String> {
    const SYNTAX: &str = "a time is a whole number of seconds, or has a unit: 500ms, 30s, 5m, 2h, 1d";
    let (number, unit) = split_number(text).ok_or(SYNTAX)?;
    let micros = match unit.as_str() {
        "us" => 1,
        "ms" => 1000,
        "" | "s" => 1_000_000,
        "m" => 60_000_000,
        "h" => 3_600_000_000,
        "d" => 86_400_000_000,
        _ => return Err(SYNTAX.into()),
    };
    let time = number.checked_mul(micros).map(Duration::from_micros);
    time.filter(|time| time.as_secs() <= MAX_SECONDS).ok_or_else(|| "the longest time is a year".into())
}

/// A whole number between these.
pub(super) fn number(text: &str, low: u64, high: u64) -> Result<u64, String> {
    let value: Option<u64> = text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok()).flatten();
    value
        .filter(|value| (low..=high).contains(value))
        .ok_or_else(|| format!("it must be a whole number from {low} to {high}"))
}

/// A switch: set if it has no value.
pub(super) fn switch(value: Option<&str>) -> Result<bool, String> {
    match value {
        None | Some("1") => Ok(true),
        Some("0") => Ok(false),
        Some(_) => Err("it must be 0 or 1".into()),
    }
}

/// One value for both directions, or `reads,writes`, either of which may be missing.
pub(super) fn by_direction<T: Clone>(
    text: &str,
    parse: impl Fn(&str) -> Result<T, String>,
) -> Result<ByDirection<Option<T>>, String> {
    let parse_part = |part: &str| if part.is_empty() { Ok(None) } else { parse(part).map(Some) };
    match text.split(',').collect::<Vec<&str>>().as_slice() {
        [both] => parse(both).map(|value| ByDirection { read: Some(value.clone()), write: Some(value) }),
        [read, write] => Ok(ByDirection { read: parse_part(read)?, write: parse_part(write)? }),
        _ => Err("it has at most two values, for reads and for writes: 4k,8k".into()),
    }
}

/// Sizes of blocks with their shares: `4k/50:8k/50`. Sizes without a share have equal parts of what is left.
pub(super) fn block_split(text: &str) -> Result<BlockSizes, String> {
    let parts: Vec<(u64, Option<u64>)> = text.split(':').map(split_part).collect::<Result<_, String>>()?;
    let stated: u64 = parts.iter().filter_map(|(_, percent)| *percent).sum();
    let unstated = parts.iter().filter(|(_, percent)| percent.is_none()).count() as u64;
    if stated > 100 || (unstated == 0 && stated != 100) {
        return Err(format!("the shares add up to {stated} %, and must to 100 %"));
    }
    let rest = if unstated > 0 { (100 - stated) as f64 / unstated as f64 } else { 0.0 };
    let shares =
        parts.into_iter().map(|(bytes, percent)| (bytes as usize, percent.map_or(rest, |percent| percent as f64)));
    BlockSizes::new(shares.collect())
}

fn split_part(part: &str) -> Result<(u64, Option<u64>), String> {
    let (bytes, percent) = part.split_once('/').unwrap_or((part, ""));
    let percent = if percent.is_empty() { None } else { Some(number(percent, 0, 100)?) };
    Ok((block_bytes(bytes)?, percent))
}

/// Bytes of a block.
pub(super) fn block_bytes(text: &str) -> Result<u64, String> {
    size(text).and_then(|bytes| match bytes {
        1..=MAX_BLOCK_BYTES => Ok(bytes),
        _ => Err("a block has 1 byte to 1 GiB".into()),
    })
}

/// Bytes of a block at most: a call moves less than 2 GiB.
const MAX_BLOCK_BYTES: u64 = 1 << 30;
