//! Frames that are changed, repeated, cut or too long; bytes of every length, encrypted and plain.

use crate::wire::cipher::TAG_BYTES;

use super::{HostileEnd, ScriptedStream, connected_halves, content};
use crate::Error;
use crate::message::SenderMessage;
use crate::secure_channel::{PART_BYTES, SecureChannel};

/// A channel, and what it sends and is sent.
type End = (SecureChannel<ScriptedStream>, ScriptedStream);

/// A sender's end and a receiver's, of which neither receives from the other by itself.
fn ends(plain: bool) -> (End, End) {
    let end = |halves| {
        let stream = ScriptedStream::default();
        let mut channel = SecureChannel::new(stream.clone(), halves).unwrap();
        channel.plain = plain;
        (channel, stream)
    };
    let (sender, receiver) = connected_halves();
    (end(sender), end(receiver))
}

/// Has these bytes come.
fn feed(stream: &ScriptedStream, frame: Vec<u8>) {
    stream.script.borrow_mut().push_back(super::ScriptedFrame { frame, is_late: false });
}

/// What becomes of two messages that were changed on their way.
fn receive_tampered(change: fn(&mut Vec<u8>)) -> [crate::Result<()>; 2] {
    let mut hostile = HostileEnd::new();
    hostile.begin().send(&SenderMessage::End);
    let mut frames: Vec<u8> =
        hostile.stream.script.borrow_mut().drain(..).flat_map(|scripted_frame| scripted_frame.frame).collect();
    change(&mut frames);
    hostile.raw(&frames);
    [(); 2].map(|()| hostile.channel.receive::<SenderMessage>().map(drop))
}

#[test]
fn tampered_or_oversized_frame_is_refused() {
    assert!(matches!(receive_tampered(|_| {}), [Ok(()), Ok(())]));
    assert!(matches!(receive_tampered(|frames| frames[9] ^= 1), [Err(Error::Tampered), _]));
    let repeat = |frames: &mut Vec<u8>| {
        let length = u32::from_le_bytes(*frames.first_chunk().unwrap()) as usize + 4;
        frames.truncate(length);
        frames.extend_from_within(..);
    };
    assert!(matches!(receive_tampered(repeat), [Ok(()), Err(Error::Tampered)]));
    let cut = |frames: &mut Vec<u8>| frames.truncate(frames.len() - 1);
    assert!(matches!(receive_tampered(cut), [Ok(()), Err(Error::Closed)]));
    let claimed = receive_tampered(|frames| frames[..4].fill(0xff));
    assert!(matches!(claimed, [Err(Error::FrameTooLong { claimed: 0xffff_ffff, .. }), _]), "{claimed:?}");
}

#[test]
fn trailing_bytes_invalidate_message() {
    let mut hostile = HostileEnd::new();
    let mut text = postcard::to_stdvec(&SenderMessage::End).unwrap();
    text.push(0);
    hostile.frame(&text);
    assert!(matches!(
        hostile.channel.receive::<SenderMessage>(),
        Err(Error::ProtocolViolation("a message that is too long"))
    ));
}

#[test]
fn bytes_of_every_length_arrive() {
    let content = content(3 * PART_BYTES, 1);
    for plain in [false, true] {
        let ((mut sender, sender_stream), (mut receiver, receiver_stream)) = ends(plain);
        for length in
            [1, 4095, 4096, 4097, 32_767, 32_768, 32_769, 65_536, PART_BYTES, 2 * PART_BYTES + 1, 3 * PART_BYTES]
        {
            sender.send_data(&content[..length]).unwrap();
            let frame = sender_stream.received.take();
            // A few bytes can be among encrypted ones by chance.
            let is_readable = length > 1000 && frame.windows(1000).any(|window| *window == content[..1000]);
            assert_eq!(is_readable, plain && length > 1000, "{length}");
            feed(&receiver_stream, frame);
            // With room for a tag, and without.
            let mut received = vec![0; length + TAG_BYTES * (length % 2)];
            receiver.receive_data(&mut received, length).unwrap();
            assert!(received[..length] == content[..length], "{length}");
        }
    }
}

#[test]
fn read_does_not_wait_for_buffered_bytes() {
    let content = content(2 * PART_BYTES, 1);
    for plain in [false, true] {
        let ((mut sender, sender_stream), (mut receiver, receiver_stream)) = ends(plain);
        sender.queue(&SenderMessage::End).unwrap();
        sender.send_data(&content).unwrap();
        let frames = sender_stream.received.take();
        // Some of the bytes come with the message before them, and the others in two parts.
        frames.chunks(frames.len() / 3 + 1).for_each(|frame| feed(&receiver_stream, frame.to_vec()));
        receiver.receive::<SenderMessage>().unwrap();
        let mut received = vec![0; content.len() + TAG_BYTES];
        receiver.receive_data(&mut received, content.len()).unwrap();
        assert!(received[..content.len()] == content && !receiver_stream.waited_in_vain.get(), "plain: {plain}");
    }
}

#[test]
fn wide_window_raises_low_water() {
    let content = content(PART_BYTES, 1);
    for plain in [false, true] {
        let ((mut sender, sender_stream), (mut receiver, receiver_stream)) = ends(plain);
        let mut received = vec![0; content.len() + TAG_BYTES];
        let mut max_low_water = |is_narrow| {
            receiver_stream.is_narrow.set(is_narrow);
            sender.send_data(&content).unwrap();
            feed(&receiver_stream, sender_stream.received.take());
            receiver.receive_data(&mut received, content.len()).unwrap();
            receiver_stream.max_low_water.take()
        };
        assert!(max_low_water(true) <= 1, "plain: {plain}");
        let low_water = max_low_water(false);
        // A window does not become narrow again.
        assert!(low_water > 1 && max_low_water(true) == low_water, "plain: {plain}");
    }
}

#[test]
fn skipped_bytes_match_announcement() {
    let content = content(2 * PART_BYTES + 7, 1);
    for plain in [false, true] {
        let ((mut sender, sender_stream), (mut receiver, receiver_stream)) = ends(plain);
        sender.queue(&SenderMessage::End).unwrap();
        sender.send_data(&content).unwrap();
        sender.send(&SenderMessage::End).unwrap();
        let frames = sender_stream.received.take();
        frames.chunks(PART_BYTES / 2 + 1).for_each(|frame| feed(&receiver_stream, frame.to_vec()));
        assert!(matches!(receiver.receive().unwrap(), SenderMessage::End));
        receiver.skip_data(content.len(), &mut vec![0; PART_BYTES + TAG_BYTES]).unwrap();
        assert!(matches!(receiver.receive().unwrap(), SenderMessage::End), "plain: {plain}");
        assert!(!receiver_stream.waited_in_vain.get(), "plain: {plain}");
    }
}
