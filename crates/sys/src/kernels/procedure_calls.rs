//! Loops of procedure calls with 0 to 7 arguments, by three kinds of call.

/// How a call reaches its callee.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallPath {
    /// A call of its address.
    Direct,
    /// A call through a register.
    Indirect,
    /// A call of a stub that jumps through a slot in memory, as the procedure linkage table of a shared library does.
    Plt,
}

/// Maximum arguments of a call.
pub const MAX_ARGUMENTS: usize = 7;

type CallLoopFn = unsafe extern "C" fn(u64) -> u64;

macro_rules! loops {
    ($($name:ident)*) => {{
        unsafe extern "C" { $(fn $name(calls: u64) -> u64;)* }
        [$($name as CallLoopFn),*]
    }};
}

fn loops(path: CallPath) -> [CallLoopFn; MAX_ARGUMENTS + 1] {
    match path {
        CallPath::Direct => loops!(
            kelvin_call_direct0 kelvin_call_direct1 kelvin_call_direct2 kelvin_call_direct3
            kelvin_call_direct4 kelvin_call_direct5 kelvin_call_direct6 kelvin_call_direct7
        ),
        CallPath::Indirect => loops!(
            kelvin_call_indirect0 kelvin_call_indirect1 kelvin_call_indirect2 kelvin_call_indirect3
            kelvin_call_indirect4 kelvin_call_indirect5 kelvin_call_indirect6 kelvin_call_indirect7
        ),
        CallPath::Plt => loops!(
            kelvin_call_plt0 kelvin_call_plt1 kelvin_call_plt2 kelvin_call_plt3
            kelvin_call_plt4 kelvin_call_plt5 kelvin_call_plt6 kelvin_call_plt7
        ),
    }
}

/// A loop of calls with a fixed number of arguments; its instructions are in one file per architecture.
#[derive(Clone, Copy, Debug)]
pub struct CallLoop(CallLoopFn);

impl CallLoop {
    /// The loop for this many arguments; `None` above [`MAX_ARGUMENTS`].
    pub fn new(arguments: usize, path: CallPath) -> Option<Self> {
        loops(path).get(arguments).copied().map(Self)
    }

    /// Makes `calls` calls (at least one); the sum of all arguments that the callees were given.
    #[inline(always)]
    pub fn run(self, calls: u64) -> u64 {
        // SAFETY: the loops keep the platform's calling convention, take any number from 1 on, and touch nothing but
        // registers and their own stack.
        unsafe { (self.0)(calls.max(1)) }
    }
}

#[cfg(test)]
mod tests {
    use super::super::emitted;
    use super::*;

    const CALL_KINDS: [CallPath; 3] = [CallPath::Direct, CallPath::Indirect, CallPath::Plt];

    /// The code at an address inside one of the functions above, long enough for any of them.
    fn code(address: usize) -> &'static [u8] {
        // SAFETY: text of this program, readable, and more of it follows: the functions lie in one section, and every
        // one of them is padded to 64 bytes and followed by the next or by the rest of the text.
        unsafe { std::slice::from_raw_parts(address as *const u8, 64) }
    }

    /// Start of the loop inside a function of calls: its second line of 64 bytes.
    fn body(arguments: usize, path: CallPath) -> usize {
        loops(path)[arguments] as usize + 64
    }

    #[test]
    fn every_argument_arrives_in_every_call() {
        for path in CALL_KINDS {
            for arguments in 0..=MAX_ARGUMENTS as u64 {
                let sum = CallLoop::new(arguments as usize, path).unwrap().run(10);
                assert_eq!(sum, 10 * arguments * (arguments + 1) / 2, "{path:?} {arguments}");
            }
        }
        assert!(CallLoop::new(MAX_ARGUMENTS + 1, CallPath::Direct).is_none());
    }

    #[test]
    fn emitted_loop_passes_each_argument() {
        for path in CALL_KINDS {
            for arguments in 0..=MAX_ARGUMENTS {
                let start = body(arguments, path);
                let moves = emitted::arguments(arguments);
                assert_eq!(code(start)[..moves.len()], moves, "{path:?} {arguments}");
                let call = start + moves.len();
                if path == CallPath::Indirect {
                    assert!(emitted::is_indirect_call(code(call)), "{arguments}");
                    continue;
                }
                let (target, _) = emitted::direct_target(code(call), call).expect("a direct call");
                let callee = emitted::callee(arguments);
                match path {
                    CallPath::Plt => assert!(emitted::is_slot_jump(code(target)), "{arguments}"),
                    _ => assert_eq!(code(target)[..callee.len()], callee, "{arguments}"),
                }
            }
        }
    }

    #[test]
    fn instructions_grow_with_every_argument() {
        let length = |n| emitted::arguments(n).len() + emitted::callee(n).len();
        assert!((1..=MAX_ARGUMENTS).all(|n| length(n) > length(n - 1)));
    }
}
