//! Which messages of a shared stream are for us: decided from the bytes, without memory of our own.

use std::collections::HashMap;

use crate::bytes::get;
use crate::hot::MessageHeader;
use crate::layout::MESSAGE_HEADER_BYTES;

const LENGTH_BYTES: usize = size_of::<u32>();

/// Keeps the messages of some schemas and templates; if told so, only those that begin with certain texts.
#[derive(Debug)]
pub struct MessageFilter<T> {
    kinds: HashMap<(u16, u16), T>,
    texts: Option<Vec<Box<[u8]>>>,
}

impl<T: Copy> MessageFilter<T> {
    /// # Arguments
    /// * `kinds`: what to do with messages of a schema and template.
    /// * `texts`: what the first text behind the block may be; `None` when it does not matter.
    pub fn new(
        kinds: impl IntoIterator<Item = ((u16, u16), T)>,
        texts: Option<impl IntoIterator<Item = Vec<u8>>>,
    ) -> Self {
        Self {
            kinds: kinds.into_iter().collect(),
            texts: texts.map(|texts| texts.into_iter().map(Vec::into_boxed_slice).collect()),
        }
    }

    /// What to do with `message`; `None` when it is not for us. `[SVC-5-4]`
    #[inline]
    pub fn look(&self, message: &[u8]) -> Option<T> {
        let header = MessageHeader::decode(message)?;
        let found = *self.kinds.get(&(header.schema_id, header.template_id))?;
        let Some(texts) = &self.texts else { return Some(found) };
        let text = first_text(message, header.block_length)?;
        texts.iter().any(|wanted| **wanted == *text).then_some(found)
    }
}

/// The first data of variable length, of a message without groups.
fn first_text(message: &[u8], block_length: u16) -> Option<&[u8]> {
    let behind = message.get(MESSAGE_HEADER_BYTES + usize::from(block_length)..)?;
    let length = get::<u32>(behind.first_chunk::<LENGTH_BYTES>()?, 0);
    behind[LENGTH_BYTES..].get(..usize::try_from(length).ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(kind: (u16, u16), block: &[u8], text: &[u8]) -> Vec<u8> {
        let head = [u16::try_from(block.len()).unwrap(), kind.1, kind.0, 1];
        let mut message: Vec<u8> = head.iter().flat_map(|number| number.to_le_bytes()).collect();
        message.extend_from_slice(block);
        message.extend_from_slice(&u32::try_from(text.len()).unwrap().to_le_bytes());
        message.extend_from_slice(text);
        message
    }

    fn for_camera() -> MessageFilter<u8> {
        MessageFilter::new([((905, 1), 7)], Some([b"service:camera".to_vec()]))
    }

    #[test]
    fn a_text_matches_wholly_or_not_at_all() {
        let filter = for_camera();
        for block in [&[][..], &[1; 38], &[2; 40], &[3; 48]] {
            assert_eq!(filter.look(&message((905, 1), block, b"service:camera")), Some(7));
            for other in [&b"service:camer"[..], b"service:camera:1", b"Service:camera", b""] {
                assert_eq!(filter.look(&message((905, 1), block, other)), None);
            }
        }
    }

    #[test]
    fn other_kinds_are_not_looked_into() {
        let filter = for_camera();
        assert_eq!(filter.look(&message((900, 1), &[0; 40], b"service:camera")), None);
        assert_eq!(filter.look(&message((905, 2), &[0; 40], b"service:camera")), None);
    }

    #[test]
    fn lengths_that_lie_match_nothing() {
        let filter = for_camera();
        let whole = message((905, 1), &[0; 40], b"service:camera");
        for end in 0..whole.len() {
            assert_eq!(filter.look(&whole[..end]), None, "the first {end} bytes");
        }
        let mut liar = whole;
        liar[48..52].copy_from_slice(&u32::MAX.to_le_bytes());
        assert_eq!(filter.look(&liar), None);
    }

    #[test]
    fn without_texts_the_kind_decides() {
        let filter = MessageFilter::new([((905, 1), 1), ((900, 3), 2)], None::<Vec<Vec<u8>>>);
        assert_eq!(filter.look(&message((900, 3), &[], b"")), Some(2));
        assert_eq!(filter.look(&[0; 7]), None);
    }
}
