//! Unpacking of one gzip file (RFC 1952, RFC 1951): the kernel's own configuration comes in one.

/// Longest text that is unpacked; a kernel configuration is about 300 kB.
const LONGEST: usize = 8 << 20;
/// Longest code in bits (RFC 1951, 3.2.7).
const CODE_BITS: usize = 15;

/// What a gzip file holds; `None` for one that is damaged or too long. Its check sum is verified.
pub(crate) fn unpack(file: &[u8]) -> Option<Vec<u8>> {
    let body = body(file)?;
    let mut bits = Bits { bytes: body, place: 0, kept: 0, count: 0 };
    let mut text = Vec::new();
    loop {
        let last = bits.take(1)?;
        match bits.take(2)? {
            0 => stored(&mut bits, &mut text)?,
            1 => compressed(&mut bits, &mut text, &fixed_codes())?,
            2 => {
                let codes = transmitted_codes(&mut bits)?;
                compressed(&mut bits, &mut text, &codes)?;
            }
            _ => return None,
        }
        if last == 1 {
            break;
        }
    }
    let trailer = body.get(bits.place..bits.place + 4)?;
    (crc32(&text).to_le_bytes() == *trailer).then_some(text)
}

/// The compressed part, after the header with its optional fields.
fn body(file: &[u8]) -> Option<&[u8]> {
    let [0x1f, 0x8b, 8, flags, ..] = *file else { return None };
    let mut rest = file.get(10..)?;
    if flags & 4 != 0 {
        let length = usize::from(u16::from_le_bytes(rest.get(..2)?.try_into().ok()?));
        rest = rest.get(2 + length..)?;
    }
    for text in [8, 16] {
        if flags & text != 0 {
            rest = &rest[rest.iter().position(|byte| *byte == 0)? + 1..];
        }
    }
    if flags & 2 != 0 { rest.get(2..) } else { Some(rest) }
}

/// Bits of a byte string, the lowest of each byte first.
struct Bits<'b> {
    bytes: &'b [u8],
    /// The next byte to take.
    place: usize,
    kept: u32,
    count: u32,
}

impl Bits<'_> {
    /// The next bits, at most 16, as a number.
    fn take(&mut self, bits: u32) -> Option<u32> {
        while self.count < bits {
            self.kept |= u32::from(*self.bytes.get(self.place)?) << self.count;
            self.place += 1;
            self.count += 8;
        }
        let value = self.kept & ((1 << bits) - 1);
        self.kept >>= bits;
        self.count -= bits;
        Some(value)
    }

    /// Leaves the rest of the current byte.
    fn align(&mut self) {
        self.kept = 0;
        self.count = 0;
    }
}

fn stored(bits: &mut Bits<'_>, text: &mut Vec<u8>) -> Option<()> {
    bits.align();
    let (length, complement) = (bits.take(16)?, bits.take(16)?);
    if length ^ complement != 0xffff {
        return None;
    }
    let part = bits.bytes.get(bits.place..bits.place + length as usize)?;
    bits.place += part.len();
    append(text, part)
}

fn append(text: &mut Vec<u8>, part: &[u8]) -> Option<()> {
    text.extend_from_slice(part);
    (text.len() <= LONGEST).then_some(())
}

/// A canonical Huffman code: how many codes of each length there are, and the symbols in the order of their codes.
struct Code {
    counts: [u16; CODE_BITS + 1],
    symbols: Vec<u16>,
}

impl Code {
    /// From the length of each symbol's code, 0 for symbols that do not occur.
    fn new(lengths: &[u8]) -> Self {
        let mut counts = [0; CODE_BITS + 1];
        let mut symbols: Vec<u16> = (0..lengths.len() as u16).filter(|&s| lengths[usize::from(s)] != 0).collect();
        symbols.sort_by_key(|&symbol| lengths[usize::from(symbol)]);
        symbols.iter().for_each(|&symbol| counts[usize::from(lengths[usize::from(symbol)])] += 1);
        Self { counts, symbols }
    }

    /// The next symbol: code by code length, as in `puff.c` of zlib.
    fn decode(&self, bits: &mut Bits<'_>) -> Option<u16> {
        let (mut code, mut first, mut index) = (0_u32, 0_u32, 0_u32);
        for &count in &self.counts[1..] {
            code |= bits.take(1)?;
            let count = u32::from(count);
            if code < first + count {
                return self.symbols.get((index + code - first) as usize).copied();
            }
            index += count;
            first = (first + count) << 1;
            code <<= 1;
        }
        None
    }
}

/// Codes of one block: of literals and lengths, and of distances.
struct Codes {
    literals: Code,
    distances: Code,
}

/// The code that needs no transmission (RFC 1951, 3.2.6).
fn fixed_codes() -> Codes {
    let length = |symbol| match symbol {
        0..=143 => 8,
        144..=255 => 9,
        256..=279 => 7,
        _ => 8,
    };
    Codes { literals: Code::new(&(0..288).map(length).collect::<Vec<u8>>()), distances: Code::new(&[5; 30]) }
}

/// The codes at the beginning of a block, themselves coded (RFC 1951, 3.2.7).
fn transmitted_codes(bits: &mut Bits<'_>) -> Option<Codes> {
    const ORDER: [usize; 19] = [16, 17, 18, 0, 8, 7, 9, 6, 10, 5, 11, 4, 12, 3, 13, 2, 14, 1, 15];
    let literals = bits.take(5)? as usize + 257;
    let distances = bits.take(5)? as usize + 1;
    let sent = bits.take(4)? as usize + 4;
    let mut lengths = [0; 19];
    for &place in &ORDER[..sent] {
        lengths[place] = bits.take(3)? as u8;
    }
    let code = Code::new(&lengths);
    let mut lengths: Vec<u8> = Vec::new();
    while lengths.len() < literals + distances {
        let (length, times) = match code.decode(bits)? {
            16 => (*lengths.last()?, 3 + bits.take(2)?),
            17 => (0, 3 + bits.take(3)?),
            18 => (0, 11 + bits.take(7)?),
            symbol => (symbol as u8, 1),
        };
        lengths.extend(std::iter::repeat_n(length, times as usize));
    }
    let (first, second) = lengths.get(..literals + distances)?.split_at(literals);
    Some(Codes { literals: Code::new(first), distances: Code::new(second) })
}

fn compressed(bits: &mut Bits<'_>, text: &mut Vec<u8>, codes: &Codes) -> Option<()> {
    loop {
        match codes.literals.decode(bits)? {
            literal @ 0..=255 => append(text, &[literal as u8])?,
            256 => return Some(()),
            symbol => {
                let length = match_length(bits, symbol)?;
                let symbol = codes.distances.decode(bits)?;
                let distance = match_distance(bits, symbol)?;
                let start = text.len().checked_sub(distance)?;
                // The match may overlap what it produces, so it is copied byte by byte.
                for place in start..start + length {
                    append(text, &[text[place]])?;
                }
            }
        }
    }
}

/// Lengths 3 to 258 (RFC 1951, 3.2.5): four symbols for each number of extra bits, the last one for 258 alone.
fn match_length(bits: &mut Bits<'_>, symbol: u16) -> Option<usize> {
    Some(match symbol {
        257..=264 => usize::from(symbol) - 254,
        265..=284 => {
            let step = u32::from(symbol - 261);
            let extra = step / 4;
            (((step % 4 + 4) << extra) + 3 + bits.take(extra)?) as usize
        }
        285 => 258,
        _ => return None,
    })
}

/// Distances 1 to 32768: two symbols for each number of extra bits.
fn match_distance(bits: &mut Bits<'_>, symbol: u16) -> Option<usize> {
    Some(match symbol {
        0..=3 => usize::from(symbol) + 1,
        4..=29 => {
            let extra = u32::from(symbol) / 2 - 1;
            (((u32::from(symbol) % 2 + 2) << extra) + 1 + bits.take(extra)?) as usize
        }
        _ => return None,
    })
}

/// The check sum of RFC 1952, section 8, bit by bit: a configuration is small.
fn crc32(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(u32::MAX, |sum, byte| {
        (0..8).fold(sum ^ u32::from(*byte), |sum, _| (sum >> 1) ^ (0xedb8_8320 & (sum & 1).wrapping_neg()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `printf 'CONFIG_HZ=250\n' | gzip -n`, a block with the fixed code.
    const FIXED: &[u8] = &[
        0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 3, 0x73, 0xf6, 0xf7, 0x73, 0xf3, 0x74, 0x8f, 0xf7, 0x88, 0xb2, 0x35, 0x32,
        0x35, 0xe0, 0x02, 0x00,
    ];

    fn whole(body: &[u8], text: &[u8]) -> Vec<u8> {
        let mut file = body.to_vec();
        file.extend(crc32(text).to_le_bytes());
        file.extend((text.len() as u32).to_le_bytes());
        file
    }

    #[test]
    fn the_check_sum_of_the_standard_test_text() {
        assert_eq!(crc32(b"123456789"), 0xcbf4_3926);
    }

    #[test]
    fn a_fixed_block() {
        let file = whole(FIXED, b"CONFIG_HZ=250\n");
        assert_eq!(unpack(&file).as_deref(), Some(&b"CONFIG_HZ=250\n"[..]));
    }

    #[test]
    fn a_stored_block_and_a_header_with_a_name() {
        let mut file = vec![0x1f, 0x8b, 8, 8, 0, 0, 0, 0, 0, 3, b'x', 0, 1, 2, 0, 0xfd, 0xff];
        file.extend(b"ab");
        assert_eq!(unpack(&whole(&file, b"ab")).as_deref(), Some(&b"ab"[..]));
    }

    #[test]
    fn damage_is_noticed() {
        let file = whole(FIXED, b"CONFIG_HZ=250\n");
        assert_eq!(unpack(&whole(FIXED, b"CONFIG_HZ=300\n")), None);
        for length in 0..file.len() - 4 {
            assert_eq!(unpack(&file[..length]), None, "{length}");
        }
    }
}
