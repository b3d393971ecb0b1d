package memory

import (
	"slices"
	"sort"

	"github.com/dayfly-dev/dayfly/internal/store"
)

// chunkMax is the maximum of items in a chunk. Inserting moves at most one chunk's items and, once in
// chunkMax/2 inserts, the list of chunks: a partition of a million records has a few thousand.
const chunkMax = 512

// item is one record under the string that orders it: its sort key, or its place in an index.
type item struct {
	at     string
	record *store.Record // never changed once it is here
}

// sorted is a partition: items in the order of at, cut into chunks, none of them empty.
type sorted struct {
	chunks [][]item
}

// find returns where at is or would be inserted: the chunk, the index in it, and whether it is there.
func (s *sorted) find(at string) (chunk, index int, found bool) {
	// The last chunk whose first item is not behind at.
	chunk = sort.Search(len(s.chunks), func(i int) bool { return s.chunks[i][0].at > at }) - 1
	if chunk < 0 {
		return 0, 0, false
	}
	index, found = slices.BinarySearchFunc(s.chunks[chunk], at, func(it item, at string) int {
		switch {
		case it.at < at:
			return -1
		case it.at > at:
			return 1
		default:
			return 0
		}
	})
	return chunk, index, found
}

func (s *sorted) get(at string) *store.Record {
	chunk, index, found := s.find(at)
	if !found {
		return nil
	}
	return s.chunks[chunk][index].record
}

func (s *sorted) put(at string, r *store.Record) {
	chunk, index, found := s.find(at)
	switch {
	case found:
		s.chunks[chunk][index].record = r
		return
	case len(s.chunks) == 0:
		s.chunks = [][]item{{{at, r}}}
		return
	}
	items := slices.Insert(s.chunks[chunk], index, item{at, r})
	s.chunks[chunk] = items
	if len(items) < chunkMax {
		return
	}
	// Items that arrive in order, as is usual, leave full chunks behind.
	cut := chunkMax / 2
	if chunk == len(s.chunks)-1 && index == len(items)-1 {
		cut = len(items) - 1
	}
	rest := slices.Clone(items[cut:])
	clear(items[cut:])
	s.chunks[chunk] = items[:cut]
	s.chunks = slices.Insert(s.chunks, chunk+1, rest)
}

func (s *sorted) remove(at string) {
	chunk, index, found := s.find(at)
	if !found {
		return
	}
	items := slices.Delete(s.chunks[chunk], index, index+1)
	s.chunks[chunk] = items
	if len(items) == 0 {
		s.chunks = slices.Delete(s.chunks, chunk, chunk+1)
	}
}

func (s *sorted) empty() bool { return len(s.chunks) == 0 }

// scan calls yield with the items from low, inclusive, to high, exclusive (empty: to the end), until
// it returns false.
func (s *sorted) scan(low, high string, reverse bool, yield func(item) bool) {
	if reverse {
		s.scanDown(low, high, yield)
		return
	}
	chunk, index, _ := s.find(low)
	for ; chunk < len(s.chunks); chunk, index = chunk+1, 0 {
		for _, it := range s.chunks[chunk][index:] {
			if high != "" && it.at >= high || !yield(it) {
				return
			}
		}
	}
}

func (s *sorted) scanDown(low, high string, yield func(item) bool) {
	chunk, index := len(s.chunks)-1, -1
	if high != "" && chunk >= 0 {
		chunk, index, _ = s.find(high)
		index-- // find's index is that of the first item that is too high
	} else if chunk >= 0 {
		index = len(s.chunks[chunk]) - 1
	}
	for chunk >= 0 {
		for ; index >= 0; index-- {
			if it := s.chunks[chunk][index]; it.at < low || !yield(it) {
				return
			}
		}
		if chunk--; chunk >= 0 {
			index = len(s.chunks[chunk]) - 1
		}
	}
}
