//! The content of files, compressed by zstd where that pays: pieces at the sender, and a frame of each at the receiver.
//!
//! A piece that does not get smaller goes as it is. The receiver is told how many bytes a piece has, and decompresses no more.

mod level_chooser;

use std::fmt;
use std::ops::RangeInclusive;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use kelvin_sys::lock;
use serde::{Deserialize, Serialize};
use zstd::bulk::Compressor;
use zstd::stream::raw::{DParameter, Decoder, InBuffer, Operation, OutBuffer};
use zstd::zstd_safe::ResetDirective;

use crate::blocks::BLOCK_BYTES;
use crate::message::SessionSettings;
use crate::secure_channel::PART_BYTES;
use crate::wire::cipher::TAG_BYTES;
use crate::{Error, Result};
use level_chooser::{LevelChooser, SentPiece};

/// The levels of zstd that can be asked for.
pub const LEVELS: RangeInclusive<u8> = 1..=22;
/// Bytes of a file that are compressed at once over the first stream. While it compresses them, the connection goes on with what its
/// buffers hold; more would save a few percent.
pub(crate) const COMPRESSED_PIECE_BYTES: u64 = 1 << 20;
/// What is looked at of a longer piece, to see whether it gets smaller: this many places of this many bytes.
const SAMPLE_PLACES: usize = 8;
const SAMPLE_PLACE_BYTES: usize = 8 << 10;
/// Of a piece that is shorter than this many samples, all is tried.
const MIN_SAMPLED_SAMPLES: usize = 4;
/// What saves less than this part of its bytes is sent as it is.
const MIN_SAVED_PART: usize = 32;
/// A frame that asks the receiver to hold more than a block is refused.
const MAX_WINDOW_LOG: u32 = BLOCK_BYTES.ilog2();

/// Which level a sender uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CompressionLevel {
    /// What is fastest, plain included, as measured meanwhile.
    Auto,
    /// This one.
    Fixed(u8),
}

/// What compressing came to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CompressionReport {
    /// Bytes of files, and as how many they were sent.
    pub content: u64,
    /// See `content`.
    pub sent: u64,
    /// Of the former, those that do not get smaller.
    pub incompressible: u64,
    /// The level by which most bytes went; 0 if most went as they are.
    pub level: u8,
    /// Bytes a second that the connection took while it was waited for, if it was.
    pub connection_rate: Option<u64>,
}

impl CompressionReport {
    /// How many times as many bytes the files have as were sent.
    pub fn ratio(&self) -> f64 {
        self.content as f64 / self.sent.max(1) as f64
    }

    /// Whether that is enough to be worth a word.
    pub(crate) fn is_smaller(&self) -> bool {
        self.saved_bytes() > 0 && self.saved_bytes() >= self.content / MIN_SAVED_PART as u64
    }

    /// Bytes that were not sent.
    pub(crate) fn saved_bytes(&self) -> u64 {
        self.content.saturating_sub(self.sent)
    }
}

impl fmt::Display for CompressionReport {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_smaller() {
            let level = if self.level > 0 { format!(", level {}", self.level) } else { ", most of it plain".into() };
            return write!(out, "compressed {:.1} times (zstd{level})", self.ratio());
        }
        let why = match self.incompressible >= self.content / 2 {
            true => "it does not get smaller",
            false => "the connection takes it faster than it can be compressed",
        };
        write!(out, "not compressed: {why}")
    }
}

/// What all streams of a sender have compressed.
#[derive(Debug, Default)]
struct CompressionTotals {
    report: CompressionReport,
    /// Bytes of files by the level by which they went.
    by_level: [u64; *LEVELS.end() as usize + 1],
}

/// What all streams of a sender have compressed, which each adds to.
#[derive(Clone, Debug, Default)]
pub(crate) struct SharedTotals(Arc<Mutex<CompressionTotals>>);

impl SharedTotals {
    pub(crate) fn report(&self) -> CompressionReport {
        let totals = lock(&self.0);
        let by_bytes = |level: &u8| totals.by_level[usize::from(*level)];
        let level = (0..=*LEVELS.end()).rev().max_by_key(by_bytes).unwrap_or_default();
        CompressionReport { level, ..totals.report }
    }
}

/// Compresses pieces over one stream.
pub(crate) struct PieceCompressor {
    compressor: Compressor<'static>,
    /// Finds out what does not get smaller, at the fastest level.
    sampler: Compressor<'static>,
    sample: Vec<u8>,
    /// The last frame, and room for the next.
    output: Vec<u8>,
    chooser: LevelChooser,
    /// The last piece, and when the one before it was sent.
    piece: SentPiece,
    last_end: Option<Instant>,
    totals: SharedTotals,
    /// Room for a piece, of whoever compresses it.
    pub(crate) content: Vec<u8>,
}

impl PieceCompressor {
    /// By some level, which adds to these totals.
    ///
    /// # Errors
    /// Those of a system without memory.
    pub(crate) fn new(level: CompressionLevel, totals: &SharedTotals) -> Result<Self> {
        let new = |level| Compressor::new(level).map_err(Error::call("compress"));
        Ok(Self {
            compressor: new(1)?,
            sampler: new(1)?,
            sample: Vec::new(),
            output: Vec::new(),
            chooser: LevelChooser::new(level),
            piece: SentPiece::default(),
            last_end: None,
            totals: totals.clone(),
            content: Vec::new(),
        })
    }

    /// The bytes of a piece as a frame, or nothing where it is to go as it is.
    pub(crate) fn compress(&mut self, content: &[u8]) -> Option<&[u8]> {
        let level = self.chooser.level();
        let start = Instant::now();
        let is_tried = level > 0 && self.is_compressible(content);
        let frame_bytes = if is_tried { self.compress_all(content, level) } else { None };
        self.piece = SentPiece {
            content: content.len() as u64,
            sent: frame_bytes.unwrap_or(content.len()) as u64,
            is_incompressible: level > 0 && frame_bytes.is_none(),
            compress: start.elapsed(),
            ..SentPiece::default()
        };
        frame_bytes.map(|bytes| &self.output[..bytes])
    }

    /// By the places of a sample.
    fn is_compressible(&mut self, content: &[u8]) -> bool {
        if content.len() < MIN_SAMPLED_SAMPLES * SAMPLE_PLACES * SAMPLE_PLACE_BYTES {
            return true;
        }
        self.sample.clear();
        for place in content.chunks(content.len() / SAMPLE_PLACES).take(SAMPLE_PLACES) {
            self.sample.extend_from_slice(&place[..SAMPLE_PLACE_BYTES]);
        }
        compress_smaller(&mut self.sampler, &self.sample, &mut self.output).is_some()
    }

    /// The bytes of a frame of this content in `output`, if they are enough fewer.
    fn compress_all(&mut self, content: &[u8], level: u8) -> Option<usize> {
        self.compressor.set_compression_level(level.into()).ok()?;
        compress_smaller(&mut self.compressor, content, &mut self.output)
    }

    /// The last piece was sent, and for this long the connection, or a limit of its rate, was waited for.
    pub(crate) fn record_sent(&mut self, wait: Duration) {
        let now = Instant::now();
        let level = if self.piece.sent < self.piece.content { self.chooser.level() } else { 0 };
        let elapsed = self.last_end.replace(now).map(|last| now - last);
        let piece = SentPiece { wait, elapsed: elapsed.unwrap_or(self.piece.compress + wait), ..self.piece };
        self.chooser.record(&piece);
        let mut totals = lock(&self.totals.0);
        let report = &mut totals.report;
        report.content += piece.content;
        report.sent += piece.sent;
        report.incompressible += if piece.is_incompressible { piece.content } else { 0 };
        report.connection_rate = self.chooser.connection_rate().or(report.connection_rate);
        totals.by_level[usize::from(level)] += piece.content;
    }

    /// What comes next was not waited for, by this stream.
    pub(crate) fn pause(&mut self) {
        self.last_end = None;
    }
}

/// The bytes of a frame of this content at the beginning of a buffer, if they are enough fewer.
fn compress_smaller(compressor: &mut Compressor<'_>, content: &[u8], output: &mut Vec<u8>) -> Option<usize> {
    let max_bytes = content.len() - content.len().div_ceil(MIN_SAVED_PART);
    output.resize(output.len().max(max_bytes), 0);
    let frame_bytes = compressor.compress_to_buffer(content, &mut output[..max_bytes]).ok();
    if frame_bytes.is_none() {
        // One that had no room is given up, which cannot fail.
        let _ = compressor.context_mut().reset(ResetDirective::SessionOnly);
    }
    frame_bytes
}

/// That a frame of this many bytes may come for a piece of that many.
///
/// # Errors
/// That it may not.
pub(crate) fn check_frame(settings: &SessionSettings, bytes: u64, frame_bytes: u32) -> Result<()> {
    Error::ensure(settings.compressed, "it compresses, and has not said so")?;
    Error::ensure(u64::from(frame_bytes) < bytes, "it compresses to no fewer bytes")
}

/// Why the frame of a piece is not what was announced.
const TOO_LONG: Error = Error::Decompression("it has more bytes than were announced");
const TOO_SHORT: Error = Error::Decompression("it has fewer bytes than were announced");

/// Decompresses frames, each of as many bytes as are announced, and in no more memory than a block takes.
pub(crate) struct Decompressor {
    decoder: Decoder<'static>,
    /// Room for a part of a frame, of whoever receives it.
    pub(crate) frame: Vec<u8>,
    output: Vec<u8>,
    remaining: u64,
    is_frame_complete: bool,
}

impl Decompressor {
    /// # Errors
    /// Those of a system without memory.
    pub(crate) fn new() -> Result<Self> {
        let mut decoder = Decoder::new().map_err(Error::call("decompress"))?;
        decoder.set_parameter(DParameter::WindowLogMax(MAX_WINDOW_LOG)).map_err(Error::call("decompress"))?;
        let (frame, output) = (vec![0; PART_BYTES + TAG_BYTES], vec![0; PART_BYTES]);
        Ok(Self { decoder, frame, output, remaining: 0, is_frame_complete: false })
    }

    /// A frame comes next that has this many bytes.
    pub(crate) fn begin(&mut self, bytes: u64) {
        self.remaining = bytes;
        self.is_frame_complete = false;
        // It only forgets what it was at.
        let _ = self.decoder.reinit();
    }

    /// The next bytes that are in this part of the frame, which is shortened; nothing where it has no more.
    ///
    /// # Errors
    /// A frame of more bytes than were announced, which is not decompressed beyond them, or of another one's window; no frame.
    pub(crate) fn next(&mut self, input: &mut &[u8]) -> Result<Option<&[u8]>> {
        if self.is_frame_complete {
            return if input.is_empty() { Ok(None) } else { Err(TOO_LONG) };
        }
        // A byte more shows that there are more.
        let max_bytes = usize::try_from(self.remaining).map_or(PART_BYTES, |bytes| PART_BYTES.min(bytes + 1));
        let mut part = InBuffer::around(input);
        let mut output = OutBuffer::around(&mut self.output[..max_bytes]);
        let run = self.decoder.run(&mut part, &mut output);
        let (read, written) = (part.pos(), output.pos());
        let hint = run.map_err(|error| Error::Decompression(describe(&error)))?;
        *input = &input[read..];
        self.is_frame_complete = hint == 0;
        if self.is_frame_complete && !input.is_empty() {
            return Err(TOO_LONG);
        }
        self.remaining = self.remaining.checked_sub(written as u64).ok_or(TOO_LONG)?;
        Ok(if written > 0 { Some(&self.output[..written]) } else { None })
    }

    /// That all has come.
    ///
    /// # Errors
    /// That it has not.
    pub(crate) fn finish(&self) -> Result<()> {
        if self.remaining == 0 && self.is_frame_complete { Ok(()) } else { Err(TOO_SHORT) }
    }
}

/// What is wrong with a frame, in words.
fn describe(error: &std::io::Error) -> &'static str {
    match error.to_string() {
        text if text.contains("too much memory") => "it would take more memory than a block",
        _ => "it is no frame of zstd, or was changed",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Words that repeat, and differ by their number.
    fn text(bytes: usize) -> Vec<u8> {
        (0_u32..).flat_map(|number| format!("line {} of a text; ", number % 977).into_bytes()).take(bytes).collect()
    }

    fn noise(bytes: usize) -> Vec<u8> {
        let mut state = 7;
        (0..bytes).map(|_| kelvin_sys::random::split_mix(&mut state) as u8).collect()
    }

    fn compressor(level: CompressionLevel) -> (PieceCompressor, SharedTotals) {
        let totals = SharedTotals::default();
        (PieceCompressor::new(level, &totals).unwrap(), totals)
    }

    /// What comes of a frame that is announced to have this many bytes, received in parts.
    fn decompress(frame: &[u8], bytes: u64) -> std::result::Result<Vec<u8>, String> {
        let (mut decompressor, mut content) = (Decompressor::new().unwrap(), Vec::new());
        // What was broken before does not matter.
        decompressor.begin(9);
        let _ = decompressor.next(&mut &frame[..frame.len() / 2]);
        decompressor.begin(bytes);
        for mut part in frame.chunks(1000) {
            while let Some(next) = decompressor.next(&mut part).map_err(|why| why.to_string())? {
                content.extend_from_slice(next);
                assert!(content.len() as u64 <= bytes);
            }
        }
        decompressor.finish().map_err(|why| why.to_string())?;
        Ok(content)
    }

    #[test]
    fn frames_of_every_length_come_back() {
        let (mut compressor, totals) = compressor(CompressionLevel::Fixed(3));
        let mut sent = 0;
        for bytes in [100, 1000, PART_BYTES - 1, PART_BYTES, PART_BYTES + 1, 300 << 10] {
            let content = text(bytes);
            let frame = compressor.compress(&content).unwrap().to_vec();
            compressor.record_sent(Duration::ZERO);
            sent += frame.len() as u64;
            assert_eq!(decompress(&frame, bytes as u64).unwrap(), content);
        }
        let report = totals.report();
        assert_eq!((report.sent, report.level, report.incompressible), (sent, 3, 0));
        assert!(report.to_string().starts_with("compressed ") && report.to_string().ends_with("(zstd, level 3)"));
    }

    #[test]
    fn noise_is_sent_as_it_is() {
        let (mut compressor, totals) = compressor(CompressionLevel::Fixed(3));
        for bytes in [0, 1, 1000, 300 << 10] {
            assert!(compressor.compress(&noise(bytes)).is_none(), "{bytes}");
            compressor.record_sent(Duration::ZERO);
        }
        // What had no room leaves nothing behind.
        assert!(compressor.compress(&noise(200 << 10)).is_none() && compressor.compress(&text(1000)).is_some());
        let report = totals.report();
        assert_eq!((report.content, report.level), (report.sent, 0));
        assert_eq!(report.to_string(), "not compressed: it does not get smaller");
        // By its sample: what is not noise is between the places that are looked at.
        let mut mixed = noise(1 << 20);
        mixed.chunks_mut(128 << 10).for_each(|part| part[9000..100_000].fill(0));
        assert!(compressor.compress(&mixed).is_none());
    }

    #[test]
    fn invalid_frames_are_refused() {
        let (mut compressor, _) = compressor(CompressionLevel::Fixed(3));
        let frame = compressor.compress(&text(200_000)).unwrap().to_vec();
        let refusal = |frame: &[u8], bytes| decompress(frame, bytes).unwrap_err();
        for bytes in [0, 1, 100_000, 199_999] {
            assert!(refusal(&frame, bytes).contains("more bytes than were announced"), "{bytes}");
        }
        assert!(refusal(&frame, 200_001).contains("fewer bytes than were announced"));
        assert!(refusal(&frame[..frame.len() - 1], 200_000).contains("fewer bytes"));
        assert!(refusal(&[&frame[..], &frame].concat(), 200_000).contains("more bytes"));
        assert!(refusal(&[&frame[..], b"x"].concat(), 200_000).contains("more bytes"));
        assert!(refusal(&[], 1).contains("fewer bytes"));
        assert!(refusal(&[7; 5000], 200_000).contains("no frame of zstd"));
        // A frame of which the header (RFC 8878, 3.1.1.1) asks for a window of 8 MiB, 2 GiB, and more than there is.
        for window in [0x68, 0xa8, 0xff] {
            let why = refusal(&[&[0x28, 0xb5, 0x2f, 0xfd, 0, window][..], &[0; 100]].concat(), 200_000);
            assert!(why.contains("more memory than a block"), "{window:x}: {why}");
        }
    }

    /// A few kilobytes that are 4 GiB of zeros: each block of a frame (RFC 8878, 3.1.1.2) repeats a byte 128 KiB times.
    #[test]
    fn bomb_is_not_decompressed() {
        let mut bomb = vec![0x28, 0xb5, 0x2f, 0xfd, 0, 0x38];
        (0..32 << 10).for_each(|_| bomb.extend([0x02, 0x00, 0x10, 0]));
        assert!(decompress(&bomb, 1 << 20).unwrap_err().contains("more bytes than were announced"));
    }
}
