//! A histogram as bytes, without loss: the V2 encoding of HdrHistogram, which its implementations in other languages read.
//!
//! A header of 40 bytes (cookie, length, scale) is followed by the counts of all buckets up to the last one that is not empty: each a
//! ZigZag LEB128 number of at most nine bytes, of which a negative one stands for so many empty buckets (HdrHistogram,
//! `AbstractHistogram.java`, `encodeIntoByteBuffer`).

use hdrhistogram::Histogram as Inner;

use super::{Histogram, MAX_NANOSECONDS, SIGNIFICANT_DIGITS};

/// The first four bytes: the encoding, and that a count has at most nine bytes.
const COOKIE: u32 = 0x1c84_9313;
/// Bytes of the header.
const HEADER_BYTES: usize = 40;
/// Bytes of the longest count.
const MAX_COUNT_BYTES: usize = 9;
/// The shortest time that has a bucket of its own, in nanoseconds.
const MIN_NANOSECONDS: u64 = 1;

/// Why bytes are no histogram of times.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HistogramError {
    /// They are no histogram in this encoding.
    #[error("it is no histogram in the V2 encoding of HdrHistogram")]
    Format,
    /// Its buckets are others.
    #[error(
        "its scale is {digits} digits from {lowest} to {highest} ns, but this version has {SIGNIFICANT_DIGITS} from {MIN_NANOSECONDS} to {MAX_NANOSECONDS} ns"
    )]
    Scale {
        /// Significant decimal digits.
        digits: u32,
        /// The shortest time with a bucket of its own.
        lowest: u64,
        /// The longest time.
        highest: u64,
    },
    /// It ends within a count.
    #[error("it ends within a count")]
    Truncated,
    /// It has counts beyond the last bucket.
    #[error("it has more buckets than its scale")]
    TooManyBuckets,
    /// Its counts together exceed what a signed 64-bit number holds.
    #[error("its counts are too large")]
    TooManyTimes,
}

impl Histogram {
    /// Bytes of the longest encoding.
    pub fn max_encoded_bytes() -> usize {
        HEADER_BYTES + MAX_COUNT_BYTES * Self::new().0.distinct_values()
    }

    /// Its bytes in HdrHistogram's V2 encoding, without compression.
    pub fn to_hdr_v2(&self) -> Vec<u8> {
        let mut counts = Vec::new();
        let mut empty_buckets = 0;
        for bucket in self.0.iter_all() {
            let count = bucket.count_at_value();
            if count == 0 {
                empty_buckets += 1;
                continue;
            }
            match empty_buckets {
                0 => {}
                1 => counts.push(0),
                _ => push_count(&mut counts, -empty_buckets),
            }
            empty_buckets = 0;
            push_count(&mut counts, count.min(i64::MAX as u64) as i64);
        }
        let mut bytes = Vec::with_capacity(HEADER_BYTES + counts.len());
        bytes.extend(COOKIE.to_be_bytes());
        bytes.extend((counts.len() as u32).to_be_bytes());
        // The offset of the first bucket, which only shifted histograms have.
        bytes.extend(0u32.to_be_bytes());
        bytes.extend(u32::from(SIGNIFICANT_DIGITS).to_be_bytes());
        bytes.extend(MIN_NANOSECONDS.to_be_bytes());
        bytes.extend(MAX_NANOSECONDS.to_be_bytes());
        bytes.extend(1f64.to_be_bytes());
        bytes.extend(counts);
        bytes
    }

    /// The histogram of such bytes.
    ///
    /// # Errors
    /// Bytes that are none, or whose buckets are not those of this type.
    pub fn from_hdr_v2(bytes: &[u8]) -> Result<Self, HistogramError> {
        let (header, counts) = bytes.split_at_checked(HEADER_BYTES).ok_or(HistogramError::Format)?;
        let is_whole = number(header, 4) as usize == counts.len();
        if number(header, 0) != COOKIE || number(header, 8) != 0 || !is_whole {
            return Err(HistogramError::Format);
        }
        let long_number = |at| u64::from(number(header, at)) << 32 | u64::from(number(header, at + 4));
        let (digits, lowest, highest) = (number(header, 12), long_number(16), long_number(24));
        if (digits, lowest, highest) != (u32::from(SIGNIFICANT_DIGITS), MIN_NANOSECONDS, MAX_NANOSECONDS) {
            return Err(HistogramError::Scale { digits, lowest, highest });
        }
        Ok(Self(decode_counts(counts)?))
    }
}

/// The histogram with these counts.
fn decode_counts(mut bytes: &[u8]) -> Result<Inner<u64>, HistogramError> {
    let empty = Histogram::new().0;
    let mut buckets = empty.iter_all().map(|bucket| bucket.value_iterated_to());
    let mut histogram = empty.clone();
    let mut total = 0i64;
    while !bytes.is_empty() {
        let count = take_count(&mut bytes)?;
        // As many buckets as there are fit into a usize.
        let skipped = if count < 0 { count.unsigned_abs() as usize - 1 } else { 0 };
        let time = buckets.nth(skipped).ok_or(HistogramError::TooManyBuckets)?;
        if count > 0 {
            total = total.checked_add(count).ok_or(HistogramError::TooManyTimes)?;
            histogram.record_n(time, count as u64).map_err(|_| HistogramError::TooManyBuckets)?;
        }
    }
    Ok(histogram)
}

/// The big-endian number at this byte of a header.
fn number(header: &[u8], at: usize) -> u32 {
    header[at..at + 4].iter().fold(0, |number, &byte| number << 8 | u32::from(byte))
}

/// Appends a count, or a negative number of empty buckets.
fn push_count(bytes: &mut Vec<u8>, count: i64) {
    let mut rest = (count << 1 ^ count >> 63) as u64;
    for _ in 1..MAX_COUNT_BYTES {
        if rest < 0x80 {
            break;
        }
        bytes.push(rest as u8 | 0x80);
        rest >>= 7;
    }
    // The ninth byte has eight bits of the number.
    bytes.push(rest as u8);
}

/// Takes the first of such numbers.
fn take_count(bytes: &mut &[u8]) -> Result<i64, HistogramError> {
    let mut rest = 0;
    for position in 0..MAX_COUNT_BYTES {
        let (&byte, others) = bytes.split_first().ok_or(HistogramError::Truncated)?;
        *bytes = others;
        let is_last = byte < 0x80 || position == MAX_COUNT_BYTES - 1;
        let bits = if position == MAX_COUNT_BYTES - 1 { byte } else { byte & 0x7f };
        rest |= u64::from(bits) << (7 * position);
        if is_last {
            break;
        }
    }
    Ok((rest >> 1) as i64 ^ -((rest & 1) as i64))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn histogram_of(times: &[u64]) -> Histogram {
        let mut histogram = Histogram::new();
        times.iter().for_each(|&time| histogram.record(time));
        histogram
    }

    /// By hand, after the description of the encoding.
    #[test]
    fn header_and_counts_have_the_published_layout() {
        let bytes = histogram_of(&[1, 1, 3]).to_hdr_v2();
        let header = [
            &[0x1c, 0x84, 0x93, 0x13, 0, 0, 0, 4, 0, 0, 0, 0, 0, 0, 0, 3][..],
            &1u64.to_be_bytes(),
            &3_600_000_000_000u64.to_be_bytes(),
            &1f64.to_be_bytes(),
        ]
        .concat();
        // No time of 0 and two of 1, none of 2 and one of 3; in ZigZag twice the number.
        assert_eq!(bytes, [&header[..], &[0, 4, 0, 2]].concat());
        let gap = histogram_of(&[0, 5]).to_hdr_v2();
        // Four empty buckets are -4, which is 7.
        assert_eq!(gap[HEADER_BYTES..], [2, 7, 2]);
    }

    #[test]
    fn counts_of_every_length_return() {
        for count in [0, 1, -1, 63, 64, -64, -65, 8191, 8192, 1 << 55, i64::MAX, i64::MIN] {
            let mut bytes = Vec::new();
            push_count(&mut bytes, count);
            let mut rest = &bytes[..];
            assert_eq!((take_count(&mut rest), rest.len(), bytes.len() <= 9), (Ok(count), 0, true), "{count}");
        }
    }

    #[test]
    fn longest_times_return() {
        for times in [&[][..], &[0], &[MAX_NANOSECONDS], &[u64::MAX, 0, 7]] {
            let histogram = histogram_of(times);
            assert_eq!(Histogram::from_hdr_v2(&histogram.to_hdr_v2()), Ok(histogram), "{times:?}");
        }
        let mut histogram = Histogram::new();
        histogram.0.record_n(5, i64::MAX as u64).unwrap();
        assert_eq!(Histogram::from_hdr_v2(&histogram.to_hdr_v2()), Ok(histogram));
    }

    #[test]
    fn foreign_bytes_are_refused() {
        let bytes = histogram_of(&[0, 5]).to_hdr_v2();
        let changed = |at: usize, byte: u8| {
            let mut bytes = bytes.clone();
            bytes[at] = byte;
            Histogram::from_hdr_v2(&bytes)
        };
        let with_counts = |counts: &[u8]| {
            let mut bytes = [&bytes[..HEADER_BYTES], counts].concat();
            bytes[7] = counts.len() as u8;
            Histogram::from_hdr_v2(&bytes)
        };
        assert_eq!(Histogram::from_hdr_v2(&bytes[..39]), Err(HistogramError::Format));
        assert_eq!(Histogram::from_hdr_v2(&bytes[..41]), Err(HistogramError::Format));
        assert_eq!((changed(3, 0x03), changed(11, 1)), (Err(HistogramError::Format), Err(HistogramError::Format)));
        let scale = HistogramError::Scale { digits: 2, lowest: 1, highest: MAX_NANOSECONDS };
        assert_eq!(changed(15, 2), Err(scale));
        assert!(scale.to_string().starts_with("its scale is 2 digits from 1 to 3600000000000 ns, but "), "{scale}");
        assert_eq!(with_counts(&[0x80]), Err(HistogramError::Truncated));
        // i64::MIN empty buckets.
        assert_eq!(with_counts(&[0xff; 9]), Err(HistogramError::TooManyBuckets));
        let max = [0xfe, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff];
        assert_eq!(with_counts(&[&max[..], &[2]].concat()), Err(HistogramError::TooManyTimes));
        assert!(with_counts(&max).is_ok());
    }

    proptest! {
        #[test]
        fn every_histogram_returns(times in prop::collection::vec(prop_oneof![0u64..100, 0u64..1 << 42], 0..300)) {
            let histogram = histogram_of(&times);
            let bytes = histogram.to_hdr_v2();
            prop_assert!(bytes.len() <= Histogram::max_encoded_bytes());
            prop_assert_eq!(Histogram::from_hdr_v2(&bytes), Ok(histogram));
        }

        /// Samples over several generators are, merged from their bytes, the histogram of all.
        #[test]
        fn merge_of_parts_equals_whole(
            samples in prop::collection::vec((0usize..5, prop_oneof![0u64..5_000_000, 0u64..1 << 43]), 0..500),
        ) {
            let whole = histogram_of(&samples.iter().map(|&(_, time)| time).collect::<Vec<_>>());
            let mut merged = Histogram::new();
            for generator in 0..5 {
                let times: Vec<u64> =
                    samples.iter().filter(|sample| sample.0 == generator).map(|&(_, time)| time).collect();
                merged.merge(&Histogram::from_hdr_v2(&histogram_of(&times).to_hdr_v2()).unwrap());
            }
            prop_assert_eq!(merged, whole);
        }

        #[test]
        fn any_counts_are_a_histogram_or_an_error(counts in prop::collection::vec(any::<u8>(), 0..200)) {
            let mut bytes = [&Histogram::new().to_hdr_v2()[..HEADER_BYTES], &counts].concat();
            bytes[4..8].copy_from_slice(&(counts.len() as u32).to_be_bytes());
            if let Ok(histogram) = Histogram::from_hdr_v2(&bytes) {
                prop_assert_eq!(Histogram::from_hdr_v2(&histogram.to_hdr_v2()), Ok(histogram));
            }
        }
    }
}
