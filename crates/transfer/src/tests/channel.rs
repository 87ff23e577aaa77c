//! Frames that are changed, repeated, cut or too long; bytes of every length, encrypted and plain.

use crate::wire::cipher::TAG_BYTES;

use super::{HostileEnd, ScriptedStream, connected_halves, content};
use crate::Error;
use crate::message::SenderMessage;
use crate::secure_channel::{PART_BYTES, SecureChannel};

/// A channel, and what it sends and is sent.
type End = (SecureChannel<ScriptedStream>, ScriptedStream);

/// A sender's end and a receiver's, of which neither hears the other by itself.
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
fn feed(here: &ScriptedStream, frame: Vec<u8>) {
    here.script.borrow_mut().push_back(super::ScriptedFrame { frame, is_late: false });
}

/// What becomes of two messages that were changed on their way.
fn receive_tampered(change: fn(&mut Vec<u8>)) -> [crate::Result<()>; 2] {
    let mut hostile = HostileEnd::new();
    hostile.begin().say(&SenderMessage::End);
    let mut frames: Vec<u8> = hostile.stream.script.borrow_mut().drain(..).flat_map(|said| said.frame).collect();
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
        let ((mut sender, there), (mut receiver, here)) = ends(plain);
        for length in
            [1, 4095, 4096, 4097, 32_767, 32_768, 32_769, 65_536, PART_BYTES, 2 * PART_BYTES + 1, 3 * PART_BYTES]
        {
            sender.send_data(&content[..length]).unwrap();
            let frame = there.received.take();
            // A few bytes can be among encrypted ones by chance.
            let is_readable = length > 1000 && frame.windows(1000).any(|window| *window == content[..1000]);
            assert_eq!(is_readable, plain && length > 1000, "{length}");
            feed(&here, frame);
            // With room for a tag, and without.
            let mut came = vec![0; length + TAG_BYTES * (length % 2)];
            receiver.receive_data(&mut came, length).unwrap();
            assert!(came[..length] == content[..length], "{length}");
        }
    }
}

#[test]
fn read_does_not_wait_for_buffered_bytes() {
    let content = content(2 * PART_BYTES, 1);
    for plain in [false, true] {
        let ((mut sender, there), (mut receiver, here)) = ends(plain);
        sender.queue(&SenderMessage::End).unwrap();
        sender.send_data(&content).unwrap();
        let frames = there.received.take();
        // Some of the bytes come with the message before them, and the others in two parts.
        frames.chunks(frames.len() / 3 + 1).for_each(|frame| feed(&here, frame.to_vec()));
        receiver.receive::<SenderMessage>().unwrap();
        let mut came = vec![0; content.len() + TAG_BYTES];
        receiver.receive_data(&mut came, content.len()).unwrap();
        assert!(came[..content.len()] == content && !here.waited_in_vain.get(), "plain: {plain}");
    }
}

#[test]
fn wide_window_raises_low_water() {
    let content = content(PART_BYTES, 1);
    for plain in [false, true] {
        let ((mut sender, there), (mut receiver, here)) = ends(plain);
        let mut came = vec![0; content.len() + TAG_BYTES];
        let mut waited_for = |is_narrow| {
            here.is_narrow.set(is_narrow);
            sender.send_data(&content).unwrap();
            feed(&here, there.received.take());
            receiver.receive_data(&mut came, content.len()).unwrap();
            here.most.take()
        };
        assert!(waited_for(true) <= 1, "plain: {plain}");
        let waited = waited_for(false);
        // A window does not become narrow again.
        assert!(waited > 1 && waited_for(true) == waited, "plain: {plain}");
    }
}

#[test]
fn skipped_bytes_match_announcement() {
    let content = content(2 * PART_BYTES + 7, 1);
    for plain in [false, true] {
        let ((mut sender, there), (mut receiver, here)) = ends(plain);
        sender.queue(&SenderMessage::End).unwrap();
        sender.send_data(&content).unwrap();
        sender.send(&SenderMessage::End).unwrap();
        let frames = there.received.take();
        frames.chunks(PART_BYTES / 2 + 1).for_each(|frame| feed(&here, frame.to_vec()));
        assert!(matches!(receiver.receive().unwrap(), SenderMessage::End));
        receiver.skip_data(content.len(), &mut vec![0; PART_BYTES + TAG_BYTES]).unwrap();
        assert!(matches!(receiver.receive().unwrap(), SenderMessage::End), "plain: {plain}");
        assert!(!here.waited_in_vain.get(), "plain: {plain}");
    }
}
