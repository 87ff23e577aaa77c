//! Frames that are changed, repeated, cut or too long; bytes of every length, encrypted and plain.

use kelvin_wire::Error as WireError;
use kelvin_wire::sealed::TAG;

use super::{Hostile, Scripted, content, shaken};
use crate::Error;
use crate::channel::{Channel, PART};
use crate::message::FromSender;

/// A channel, and what it sends and is sent.
type End = (Channel<Scripted>, Scripted);

/// A sender's end and a receiver's, of which neither hears the other by itself.
fn ends(plain: bool) -> (End, End) {
    let end = |halves| {
        let stream = Scripted::default();
        let mut channel = Channel::new(stream.clone(), halves).unwrap();
        channel.set_plain(plain);
        (channel, stream)
    };
    let (sender, receiver) = shaken();
    (end(sender), end(receiver))
}

/// Has these bytes come.
fn say(here: &Scripted, frame: Vec<u8>) {
    here.says.borrow_mut().push_back(super::Said { frame, is_late: false });
}

/// What becomes of two messages that were changed on their way.
fn received(change: fn(&mut Vec<u8>)) -> [crate::Result<()>; 2] {
    let mut hostile = Hostile::new();
    hostile.begin().say(&FromSender::End);
    let mut frames: Vec<u8> = hostile.stream.says.borrow_mut().drain(..).flat_map(|said| said.frame).collect();
    change(&mut frames);
    hostile.raw(&frames);
    [(); 2].map(|()| hostile.channel.receive::<FromSender>().map(drop))
}

#[test]
fn a_frame_that_is_changed_repeated_cut_or_too_long_is_refused() {
    assert!(matches!(received(|_| {}), [Ok(()), Ok(())]));
    assert!(matches!(received(|frames| frames[9] ^= 1), [Err(Error::Wire(WireError::Changed)), _]));
    let repeat = |frames: &mut Vec<u8>| {
        let length = u32::from_le_bytes(*frames.first_chunk().unwrap()) as usize + 4;
        frames.truncate(length);
        frames.extend_from_within(..);
    };
    assert!(matches!(received(repeat), [Ok(()), Err(Error::Wire(WireError::Changed))]));
    let cut = |frames: &mut Vec<u8>| frames.truncate(frames.len() - 1);
    assert!(matches!(received(cut), [Ok(()), Err(Error::Wire(WireError::Gone))]));
    let claimed = received(|frames| frames[..4].fill(0xff));
    assert!(matches!(claimed, [Err(Error::Wire(WireError::TooLong { claimed: 0xffff_ffff, .. })), _]), "{claimed:?}");
}

#[test]
fn a_message_with_more_behind_it_is_none() {
    let mut hostile = Hostile::new();
    let mut text = postcard::to_stdvec(&FromSender::End).unwrap();
    text.push(0);
    hostile.frame(&text);
    assert!(matches!(hostile.channel.receive::<FromSender>(), Err(Error::Nonsense("a message that is too long"))));
}

#[test]
fn bytes_of_every_length_arrive_and_only_plain_ones_can_be_read_on_the_way() {
    let content = content(3 * PART, 1);
    for plain in [false, true] {
        let ((mut sender, there), (mut receiver, here)) = ends(plain);
        for length in [1, 4095, 4096, 4097, 32_767, 32_768, 32_769, 65_536, PART, 2 * PART + 1, 3 * PART] {
            sender.send_data(&content[..length]).unwrap();
            let frame = there.received.take();
            // A few bytes can be among encrypted ones by chance.
            let is_readable = length > 1000 && frame.windows(1000).any(|window| *window == content[..1000]);
            assert_eq!(is_readable, plain && length > 1000, "{length}");
            say(&here, frame);
            // With room for a tag, and without.
            let mut came = vec![0; length + TAG * (length % 2)];
            receiver.data_into(&mut came, length).unwrap();
            assert!(came[..length] == content[..length], "{length}");
        }
    }
}

#[test]
fn no_read_waits_for_bytes_that_have_already_come() {
    let content = content(2 * PART, 1);
    for plain in [false, true] {
        let ((mut sender, there), (mut receiver, here)) = ends(plain);
        sender.queue(&FromSender::End).unwrap();
        sender.send_data(&content).unwrap();
        let frames = there.received.take();
        // Some of the bytes come with the message before them, and the others in two parts.
        frames.chunks(frames.len() / 3 + 1).for_each(|frame| say(&here, frame.to_vec()));
        receiver.receive::<FromSender>().unwrap();
        let mut came = vec![0; content.len() + TAG];
        receiver.data_into(&mut came, content.len()).unwrap();
        assert!(came[..content.len()] == content && !here.waited_in_vain.get(), "plain: {plain}");
    }
}

#[test]
fn a_read_waits_for_many_bytes_once_the_window_is_wide() {
    let content = content(PART, 1);
    for plain in [false, true] {
        let ((mut sender, there), (mut receiver, here)) = ends(plain);
        let mut came = vec![0; content.len() + TAG];
        let mut waited_for = |is_narrow| {
            here.is_narrow.set(is_narrow);
            sender.send_data(&content).unwrap();
            say(&here, there.received.take());
            receiver.data_into(&mut came, content.len()).unwrap();
            here.most.take()
        };
        assert!(waited_for(true) <= 1, "plain: {plain}");
        let waited = waited_for(false);
        // A window does not become narrow again.
        assert!(waited > 1 && waited_for(true) == waited, "plain: {plain}");
    }
}

#[test]
fn bytes_that_are_passed_over_are_as_many_as_were_announced() {
    let content = content(2 * PART + 7, 1);
    for plain in [false, true] {
        let ((mut sender, there), (mut receiver, here)) = ends(plain);
        sender.queue(&FromSender::End).unwrap();
        sender.send_data(&content).unwrap();
        sender.send(&FromSender::End).unwrap();
        let frames = there.received.take();
        frames.chunks(PART / 2 + 1).for_each(|frame| say(&here, frame.to_vec()));
        assert!(matches!(receiver.receive().unwrap(), FromSender::End));
        receiver.pass_over(content.len(), &mut vec![0; PART + TAG]).unwrap();
        assert!(matches!(receiver.receive().unwrap(), FromSender::End), "plain: {plain}");
        assert!(!here.waited_in_vain.get(), "plain: {plain}");
    }
}
