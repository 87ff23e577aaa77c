//! Mathematical functions, linked statically instead of loaded with the C library's `libm`.
//!
//! The standard library's `f64::ln` and its like call the symbols `log` and so on, which a program finds in `libm.so`
//! unless it defines them. Defined here, by the crate `libm`, they save five mappings, each of which a fork would copy
//! or exclude; and an analysis gives the same last digits with any C library.
//!
//! Only the program asks for this (feature `mathematics`): a library must not decide it for others.

macro_rules! defined {
    ($($name:ident($($argument:ident),+);)*) => {
        $(
            // The symbol replaces that of the C library, with its meaning and its types.
            #[unsafe(no_mangle)]
            extern "C" fn $name($($argument: f64),+) -> f64 {
                libm::$name($($argument),+)
            }
        )*

        /// Their names.
        #[cfg(test)]
        const DEFINED: &[&str] = &[$(stringify!($name)),*];
    };
}

defined! {
    log(x);
    log2(x);
    log10(x);
    log1p(x);
    exp(x);
    exp2(x);
    pow(x, y);
    hypot(x, y);
    sin(x);
    cos(x);
    acos(x);
}

#[cfg(test)]
mod tests {
    use super::DEFINED;

    #[test]
    fn standard_library_calls_these_functions() {
        let argument = std::hint::black_box(0.7);
        let pairs: [(&str, f64, f64); 11] = [
            ("log", libm::log(argument), argument.ln()),
            ("log2", libm::log2(argument), argument.log2()),
            ("log10", libm::log10(argument), argument.log10()),
            ("log1p", libm::log1p(argument), argument.ln_1p()),
            ("exp", libm::exp(argument), argument.exp()),
            ("exp2", libm::exp2(argument), argument.exp2()),
            ("pow", libm::pow(argument, 3.3), argument.powf(3.3)),
            ("hypot", libm::hypot(argument, 3.3), argument.hypot(3.3)),
            ("sin", libm::sin(argument), argument.sin()),
            ("cos", libm::cos(argument), argument.cos()),
            ("acos", libm::acos(argument), argument.acos()),
        ];
        for (name, actual, standard) in pairs {
            assert!(DEFINED.contains(&name), "{name}");
            assert_eq!(actual.to_bits(), standard.to_bits(), "{name}");
        }
        assert_eq!(DEFINED.len(), pairs.len());
    }
}
