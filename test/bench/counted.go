package main

import (
	"context"
	"fmt"
	"sync/atomic"

	"github.com/dayfly-dev/dayfly/internal/store"
)

// counted counts the calls of a store and the operations of its commits.
type counted struct {
	store.Store
	gets, keys, ranges, commits, ops atomic.Int64
}

// Get implements store.Store.
func (c *counted) Get(ctx context.Context, keys ...store.Key) ([]store.Record, error) {
	c.gets.Add(1)
	c.keys.Add(int64(len(keys)))
	return c.Store.Get(ctx, keys...)
}

// Range implements store.Store.
func (c *counted) Range(ctx context.Context, s store.Scan) (store.Page, error) {
	c.ranges.Add(1)
	return c.Store.Range(ctx, s)
}

// Commit implements store.Store.
func (c *counted) Commit(ctx context.Context, id string, ops ...store.Op) error {
	c.commits.Add(1)
	c.ops.Add(int64(len(ops)))
	return c.Store.Commit(ctx, id, ops...)
}

func (c *counted) reset() {
	for _, n := range []*atomic.Int64{&c.gets, &c.keys, &c.ranges, &c.commits, &c.ops} {
		n.Store(0)
	}
}

// per prints the counts divided by n.
func (c *counted) per(n int) string {
	one := func(total *atomic.Int64) float64 { return float64(total.Load()) / float64(n) }
	return fmt.Sprintf("%.2f commits of %.1f operations, %.1f reads of %.1f records, %.1f ranges",
		one(&c.commits), float64(c.ops.Load())/float64(max(c.commits.Load(), 1)), one(&c.gets), one(&c.keys), one(&c.ranges))
}
