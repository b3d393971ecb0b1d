package main

import "testing"

func TestRun_RunsAllJobs(t *testing.T) {
	floor, err := run(t.Context(), 20, 4)
	if err != nil {
		t.Fatal(err)
	}
	if floor.Jobs != 20 || floor.Took <= 0 || floor.Processor <= 0 {
		t.Errorf("got %+v", floor)
	}
}
