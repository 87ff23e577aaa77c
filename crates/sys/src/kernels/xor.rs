//! The XOR of the 32-bit words of a block, with the widest vectors of this processor.

/// The XOR of all 32-bit little-endian words of `block`; an incomplete last word is padded with zeros.
#[inline]
pub fn xor(block: &[u8]) -> u32 {
    #[cfg(target_arch = "x86_64")]
    {
        if block.len() >= BYTES_PER_ITERATION && std::arch::is_x86_feature_detected!("avx512f") {
            // SAFETY: the processor has what the function is compiled for.
            return unsafe { with_avx512(block) };
        }
        if block.len() >= BYTES_PER_ITERATION && std::arch::is_x86_feature_detected!("avx2") {
            // SAFETY: as above.
            return unsafe { with_avx2(block) };
        }
    }
    fold(block)
}

/// Bytes per loop iteration: eight registers of 512 bits, so that as many loads are in flight.
const BYTES_PER_ITERATION: usize = 512;

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f")]
fn with_avx512(block: &[u8]) -> u32 {
    fold(block)
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn with_avx2(block: &[u8]) -> u32 {
    fold(block)
}

/// Like `with_avx2`, for every processor; compiled once for each set of instructions that it is inlined into.
#[inline(always)]
fn fold(block: &[u8]) -> u32 {
    let mut lanes = [0u64; BYTES_PER_ITERATION / 8];
    let (iterations, rest) = block.as_chunks::<BYTES_PER_ITERATION>();
    for iteration in iterations {
        let (words, _) = iteration.as_chunks::<8>();
        for (lane, word) in lanes.iter_mut().zip(words) {
            *lane ^= u64::from_le_bytes(*word);
        }
    }
    let (words, tail) = rest.as_chunks::<8>();
    let mut last = [0; 8];
    last[..tail.len()].copy_from_slice(tail);
    let rest_sum = words.iter().chain([&last]).fold(0, |sum, word| sum ^ u64::from_le_bytes(*word));
    let sum = lanes.iter().fold(rest_sum, |sum, lane| sum ^ lane);
    (sum ^ (sum >> 32)) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The definition, word by word.
    fn by_words(block: &[u8]) -> u32 {
        block.chunks(4).fold(0, |sum, chunk| {
            let mut word = [0; 4];
            word[..chunk.len()].copy_from_slice(chunk);
            sum ^ u32::from_le_bytes(word)
        })
    }

    #[test]
    fn every_length_and_alignment_matches_definition() {
        let bytes: Vec<u8> =
            (0..3 * BYTES_PER_ITERATION as u32 + 40).map(|i| (i.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
        for start in 0..8 {
            for end in start..bytes.len() {
                let block = &bytes[start..end];
                assert_eq!((xor(block), fold(block)), (by_words(block), by_words(block)), "{start}..{end}");
            }
        }
    }

    #[test]
    fn known_answers() {
        assert_eq!(xor(b""), 0);
        assert_eq!(xor(&[0x78, 0x56, 0x34, 0x12]), 0x1234_5678);
        assert_eq!(xor(&[0x78, 0x56, 0x34, 0x12, 0xff]), 0x1234_5687);
        assert_eq!(xor(&[7; 4096]), 0);
    }
}
