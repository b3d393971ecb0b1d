package mask

import "encoding/binary"

// index finds patterns by their first four bytes: a bit for each hash of them, to pass quickly
// over text that holds none, then a table.
type index struct {
	bits  [1 << (hashBits - 6)]uint64
	table map[uint32][]string
}

const hashBits = 17

func hash(first uint32) uint32 { return first * 0x9E3779B1 >> (32 - hashBits) }

// bit is odd if a pattern may begin with these bytes.
func (x *index) bit(first uint32) uint64 {
	h := hash(first)
	return x.bits[h>>6] >> (h & 63)
}

func (x *index) add(pattern string) {
	if x.table == nil {
		x.table = map[uint32][]string{}
	}
	first := binary.LittleEndian.Uint32([]byte(pattern[:prefix]))
	x.table[first] = append(x.table[first], pattern)
	h := hash(first)
	x.bits[h>>6] |= 1 << (h & 63)
}

// span is a piece of a text: from the first byte up to and without end.
type span struct{ from, end int }

// find appends to found every place of every pattern in b, in the order of their beginnings.
func (x *index) find(b []byte, found []span) []span {
	for i := 0; ; i++ {
		i += x.skip(b[i:])
		if i+prefix > len(b) {
			return found
		}
		first := binary.LittleEndian.Uint32(b[i:])
		if x.bit(first)&1 == 0 {
			continue
		}
		end := 0
		for _, p := range x.table[first] {
			if len(p) > end && len(p) <= len(b)-i && string(b[i:i+len(p)]) == p {
				end = len(p)
			}
		}
		if end > 0 {
			found = append(found, span{i, i + end})
		}
	}
}

// skip returns how many bytes of b no pattern begins at: it looks at four places at a time, and not at the last few.
func (x *index) skip(b []byte) int {
	rest := b
	for len(rest) >= 8 {
		w := binary.LittleEndian.Uint64(rest)
		//nolint:gosec // four bytes each
		if (x.bit(uint32(w))|x.bit(uint32(w>>8))|x.bit(uint32(w>>16))|x.bit(uint32(w>>24)))&1 != 0 {
			break
		}
		rest = rest[4:]
	}
	return len(b) - len(rest)
}
