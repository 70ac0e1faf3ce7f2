package main

// gathered is a storm in which the app gets several messages in one request.
const gathered = "-gather=25 -concurrency=4 -messages=2000 -warm-up=300 -liveness=100 -rate=1000 -faults=0"

// gatherers are deliberate bugs of batches.
var gatherers = []mutant{
	{
		name: "counts a batch that failed for each of its messages",
		edits: []edit{{"internal/consume/batch.go", "	if each == nil && c.split(b, &whole) {\n",
			"	if each == nil && len(b.attempts) == 0 && c.split(b, &whole) {\n"}},
		caught: []string{"I18"}, flags: flags(gathered),
	},
	{
		name: "takes the verdict on a message for that on the next one",
		edits: []edit{{"internal/dispatch/verdict.go", "o := &j.each[i]\n",
			"o := &j.each[(i+1)%len(j.each)]\n"}},
		caught: []string{"I2"}, flags: flags(gathered),
	},
	{
		name: "forgets a message of a batch that failed",
		edits: []edit{{"internal/consume/batch.go", "			back.all = append(back.all, newAlone(&b.attempts[i], b.since))\n",
			"			if i > 0 {\n				back.all = append(back.all, newAlone(&b.attempts[i], b.since))\n			}\n"}},
		caught: []string{"I1", "I9"}, flags: flags(gathered, "-patience=15s"),
	},
	{
		name: "puts a message that was tried before among others",
		edits: []edit{{"internal/consume/batch.go", "alone := a.m.Redelivered || a.m.RetryCount > 0 || ",
			"alone := a.m.Redelivered || "}},
		caught: []string{"I18"}, flags: flags(gathered),
	},
}
