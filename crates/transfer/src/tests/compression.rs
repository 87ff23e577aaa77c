//! Compressed content between both ends, and from a hostile sender: whole files, or nothing of them.

use std::fs;
use std::path::PathBuf;

use kelvin_sys::random::split_mix;

use super::hostile_sender::finish;
use super::streams::{assert_equal_files, with_receiver};
use super::{
    DEFAULT_SETTINGS, HostileEnd, digest, directory_destination, entry, final_names, names, piece, sender_options,
    target_directory,
};
use crate::blocks::BLOCK_BYTES;
use crate::compression::{CompressionLevel, PieceCompressor, SharedTotals};
use crate::message::{EntryKind, FileEntry, SenderMessage, SessionSettings, WholeFile};
use crate::send::{SendResult, Sender, SenderOptions};
use crate::session::SessionEvent;
use crate::source::{PreserveOptions, SourceList};
use crate::wire::secret::Secret;

const COMPRESSED: SessionSettings = SessionSettings { compressed: true, ..DEFAULT_SETTINGS };

/// Words that repeat.
fn text(bytes: usize) -> Vec<u8> {
    (0_u32..).flat_map(|number| format!("line {} of a text; ", number % 977).into_bytes()).take(bytes).collect()
}

fn noise(bytes: usize) -> Vec<u8> {
    let mut state = 7;
    (0..bytes).map(|_| split_mix(&mut state) as u8).collect()
}

fn frame_of(content: &[u8]) -> Vec<u8> {
    let mut compressor = PieceCompressor::new(CompressionLevel::Fixed(1), &SharedTotals::default()).unwrap();
    compressor.compress(content).unwrap().to_vec()
}

impl HostileEnd {
    /// A piece of a file as a frame, and the digest of what it is to be.
    fn compressed_block(&mut self, piece: crate::message::FilePiece, frame: &[u8], content: &[u8]) -> &mut Self {
        self.send(&SenderMessage::CompressedBlock { piece, frame_bytes: frame.len() as u32 }).data(frame);
        self.send(&SenderMessage::Digests(vec![digest(content)]))
    }

    /// One small file as a frame.
    fn compressed_batch(&mut self, file: u32, frame: &[u8], content: &[u8]) -> &mut Self {
        let files = vec![WholeFile { file, bytes: content.len() as u32 }];
        let (digest, frame_bytes) = (Some(digest(content)), frame.len() as u32);
        self.send(&SenderMessage::CompressedBatch { files, digest, frame_bytes }).data(frame)
    }
}

fn sized(name: &str, bytes: usize) -> FileEntry {
    entry(0, name, EntryKind::File { bytes: bytes as u64, stored: bytes as u64 })
}

#[test]
fn files_of_any_kind_arrive_compressed() {
    let source = tempfile::tempdir().unwrap();
    let large = BLOCK_BYTES as usize + 70_000;
    let files: [(&str, Vec<u8>); 6] = [
        ("empty", Vec::new()),
        ("byte", vec![7]),
        ("small", text(60_000)),
        ("noise", noise(90_000)),
        ("text", text(large)),
        ("mixed", [text(300_000), noise(2 << 20), vec![0; 3 << 20]].concat()),
    ];
    let write = |(name, content): &(&str, Vec<u8>)| {
        let path = source.path().join(name);
        fs::write(&path, content).unwrap();
        path
    };
    let paths: Vec<PathBuf> = files.iter().map(write).collect();
    let bytes: u64 = files.iter().map(|(_, content)| content.len() as u64).sum();
    for (number, (streams, plain, limit)) in
        [(1, false, None), (1, true, Some(200 << 20)), (4, false, None)].into_iter().enumerate()
    {
        let (_outer, inner) = target_directory();
        let events = with_receiver(directory_destination(&inner), |receiver| {
            let compression = Some(CompressionLevel::Fixed(1 + number as u8));
            let settings = SessionSettings { streams, plain, ..DEFAULT_SETTINGS };
            let options = SenderOptions { compression, limit, ..sender_options(settings) };
            let list = SourceList::collect(&paths, PreserveOptions::default()).unwrap();
            let sender = Sender::connect(&[receiver.0.address().unwrap()], &Secret::none(), options).unwrap();
            let SendResult { summary, unsent, .. } = sender.send(list, &|_, _| {}).unwrap();
            assert!(unsent.is_empty(), "{unsent:?}");
            let report = summary.sent.compression.unwrap();
            assert_eq!((summary.moved.amount.moved, report.content, report.level), (bytes, bytes, 1 + number as u8));
            // What repeats is half of it and more. A block that another stream has taken is tried as a whole, noise and all.
            let noise_bytes = if streams == 1 { 1 << 20 } else { 90_000 };
            assert!(report.sent < bytes / 2 && report.incompressible >= noise_bytes, "{report:?}");
            assert!(summary.to_string().contains(", verified, compressed "), "{summary}");
            assert!(!summary.is_predictable() && summary.received.costs.is_none());
        });
        assert_equal_files(&paths, &inner);
        assert!(!events.iter().any(|event| matches!(event, SessionEvent::Fault(_))), "{events:?}");
    }
}

#[test]
fn unannounced_or_longer_frames_end_session() {
    let (content, frame) = (text(1000), frame_of(&text(1000)));
    for (settings, frame_bytes, words) in [
        (DEFAULT_SETTINGS, frame.len() as u32, "it compresses, and has not said so"),
        (COMPRESSED, 1000, "it compresses to no fewer bytes"),
        (COMPRESSED, u32::MAX, "it compresses to no fewer bytes"),
    ] {
        for is_batch in [false, true] {
            let (_outer, inner) = target_directory();
            let mut hostile = HostileEnd::new();
            hostile.send(&SenderMessage::Begin(settings)).offer(&[sized("a", 1000)]);
            let files = vec![WholeFile { file: 0, bytes: 1000 }];
            hostile.send(&match is_batch {
                true => SenderMessage::CompressedBatch { files, digest: Some(digest(&content)), frame_bytes },
                false => SenderMessage::CompressedBlock { piece: piece(0, 0, 1000), frame_bytes },
            });
            let outcome = hostile.data(&frame).run_session(&inner);
            assert!(outcome.errors().contains(words), "{words}: {}", outcome.errors());
            assert_eq!(names(&inner), [""; 0]);
        }
    }
}

/// Bombs, frames that are cut or changed, and those of something else: an error of the file in one line, and the next one arrives.
#[test]
fn invalid_frames_fail_their_file_alone() {
    let content = text(60_000);
    let (frame, longer, shorter) = (frame_of(&content), frame_of(&text(60_001)), frame_of(&content[..59_999]));
    let mut changed = frame.clone();
    changed[frame.len() / 2] ^= 0x55;
    let other = [&content[1..], b"x"].concat();
    // A window of 128 KiB, and blocks of which each repeats a byte 128 KiB times (RFC 8878, 3.1.1).
    let mut bomb = vec![0x28, 0xb5, 0x2f, 0xfd, 0, 0x38];
    (0..2000).for_each(|_| bomb.extend([0x02, 0x00, 0x10, 0]));
    let wide_window = [&[0x28, 0xb5, 0x2f, 0xfd, 0, 0xa8][..], &[0; 100]].concat();
    for (frame, words) in [
        (longer, "more bytes than were announced"),
        (bomb, "more bytes than were announced"),
        (shorter, "fewer bytes than were announced"),
        (frame[..frame.len() - 4].to_vec(), "fewer bytes than were announced"),
        (Vec::new(), "fewer bytes than were announced"),
        (wide_window, "more memory than a block"),
        (vec![7; 500], "it is no frame of zstd, or was changed"),
        (changed, ""),
        (frame_of(&other), "what arrived differs from what was sent (BLAKE3)"),
    ] {
        for is_batch in [false, true] {
            let (_outer, inner) = target_directory();
            let mut hostile = HostileEnd::new();
            hostile.send(&SenderMessage::Begin(COMPRESSED)).offer(&[sized("a", 60_000), sized("b", 60_000)]);
            match is_batch {
                true => hostile.compressed_batch(0, &frame, &content),
                false => hostile.compressed_block(piece(0, 0, 60_000), &frame, &content),
            };
            hostile.compressed_batch(1, &frame_of(&content), &content);
            let outcome = hostile.send(&SenderMessage::End).send(&finish()).run_session(&inner);
            let errors = outcome.errors();
            assert!(errors.contains(words) && errors.lines().count() == 1, "{words}: {errors}");
            assert_eq!((outcome.result.unwrap().moved.files, final_names(&inner)), (1, (vec!["b".into()], 0)));
            assert!(fs::read(inner.join("b")).unwrap() == content);
        }
    }
}
