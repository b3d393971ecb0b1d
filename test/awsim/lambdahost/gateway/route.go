package gateway

import (
	"maps"
	"slices"
	"strings"
)

// Route is the key of the route that an HTTP API takes a request to, such as "POST /v1/claims"; "$default" where no
// other fits. A route fits whose path is the same or has variables in place of single segments; then one that ends in a
// greedy variable, the longest first. A static segment goes before a variable, and a method before ANY.
// https://docs.aws.amazon.com/apigateway/latest/developerguide/http-api-develop-routes.html
func Route[V any](routes map[string]V, method, path string) string {
	best, rank := "$default", ""
	for _, key := range slices.Sorted(maps.Keys(routes)) {
		of, pattern, ok := strings.Cut(key, " ")
		if !ok || of != method && of != "ANY" {
			continue
		}
		r := specific(pattern, path)
		if r != "" && of != "ANY" {
			r += "m"
		}
		if r > rank {
			best, rank = key, r
		}
	}
	return best
}

// specific is greater the closer a pattern describes a path: "" where it does not fit.
func specific(pattern, path string) string {
	want, got := strings.Split(pattern, "/"), strings.Split(path, "/")
	rank := "b" // after all greedy ones
	for i, segment := range want {
		variable := strings.HasPrefix(segment, "{")
		switch {
		case i >= len(got):
			return ""
		case strings.HasSuffix(segment, "+}"):
			return "a" + rank[1:]
		case variable:
			rank += "1"
		case segment == got[i]:
			rank += "2"
		default:
			return ""
		}
	}
	if len(want) != len(got) {
		return ""
	}
	return rank
}
