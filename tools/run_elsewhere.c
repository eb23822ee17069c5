/* Runs a network that was compiled for this processor on inputs from a file: see run_elsewhere.py.

   run_elsewhere JOB RESULTS

   JOB holds 64-bit integers (threads, bytes of the memory that the threads share, bytes of the arena, bytes of the
   constants, arrays, of these read, runs), the bytes of every array, the constants, and for every run the arrays that
   are read. RESULTS gets for every run what ``start`` gave and the arrays that are written. Every piece of memory ends
   where an inaccessible page begins, and begins behind one. Exit status 2: the job cannot be read or the memory cannot be had. */

#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { STOP = 1, CONTROL_BYTES = 128 + 64 * 64, PAGE = 65536 };

void stage_0(void *arena, void *constants, void **table, void *claims, int64_t epoch);
int64_t worker(void *control, int64_t index, int64_t seen, int64_t budget);
void show(void *control, void *job);
void settle(void *control, int64_t lines, void *job);
int64_t start(void *job);

static void fail(const char *what) {
  fprintf(stderr, "run_elsewhere: %s\n", what);
  exit(2);
}

/* Memory that ends at a page that nobody may touch, as far as its alignment allows. */
static void *guarded(int64_t bytes, int64_t alignment) {
  int64_t size = (bytes + alignment - 1) / alignment * alignment;
  int64_t whole = (size + PAGE - 1) / PAGE * PAGE;
  char *raw = mmap(NULL, whole + 2 * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (raw == MAP_FAILED || (whole && mprotect(raw + PAGE, whole, PROT_READ | PROT_WRITE))) fail("no memory");
  return raw + PAGE + whole - size;
}

static void take(FILE *file, void *target, int64_t bytes) {
  if (fread(target, 1, bytes, file) != (size_t)bytes) fail("the job ends too early");
}

struct hand {
  pthread_t thread;
  int64_t *control;
  int64_t index;
};

static void *work(void *given) {
  struct hand *hand = given;
  int64_t seen = 0;
  while (!__atomic_load_n(&hand->control[STOP], __ATOMIC_ACQUIRE))
    seen = worker(hand->control, hand->index, seen, 100000);
  return NULL;
}

int main(int count, char **words) {
  int64_t head[7];
  FILE *job_file = count == 3 ? fopen(words[1], "rb") : NULL;
  FILE *results = job_file ? fopen(words[2], "wb") : NULL;
  if (!results) fail("usage: run_elsewhere JOB RESULTS");
  take(job_file, head, sizeof head);
  int64_t threads = head[0], arrays = head[4], given = head[5], runs = head[6];
  if (threads < 1 || threads > 64) fail("1 to 64 threads");
  int64_t *sizes = calloc(arrays + 1, sizeof *sizes);
  void **array = calloc(arrays + 1, sizeof *array);
  struct hand *hands = calloc(threads, sizeof *hands);
  if (!sizes || !array || !hands) fail("no memory");
  take(job_file, sizes, arrays * sizeof *sizes);
  void **table = guarded(arrays * sizeof *table, 64);
  char *arena = guarded(head[2], 64), *constants = guarded(head[3], 64);
  int64_t *job = guarded(head[1], 64), *control = guarded(CONTROL_BYTES, 64);
  memset(arena, 0xA5, head[2]); /* kernels must not rely on what nobody wrote */
  take(job_file, constants, head[3]);
  job[1] = (int64_t)stage_0, job[2] = (int64_t)arena, job[3] = (int64_t)constants;
  job[4] = (int64_t)table, job[5] = threads - 1;
  for (int64_t k = 0; k < arrays; k++) table[k] = array[k] = guarded(sizes[k], 4);
  for (int64_t k = 0; k + 1 < threads; k++) {
    hands[k].control = control, hands[k].index = k;
    if (pthread_create(&hands[k].thread, NULL, work, &hands[k])) fail("no thread");
  }
  for (int64_t run = 0; run < runs; run++) {
    for (int64_t k = 0; k < given; k++) take(job_file, array[k], sizes[k]);
    for (int64_t k = given; k < arrays; k++) memset(array[k], 0x5A, sizes[k]);
    int64_t found = start(job);
    if (found < 0 && threads > 1) {
      show(control, job);
      settle(control, threads - 1, job);
    }
    fwrite(&found, sizeof found, 1, results);
    for (int64_t k = given; k < arrays; k++) fwrite(array[k], 1, sizes[k], results);
  }
  __atomic_store_n(&control[STOP], 1, __ATOMIC_RELEASE);
  for (int64_t k = 0; k + 1 < threads; k++) pthread_join(hands[k].thread, NULL);
  if (fclose(results)) fail("the results cannot be written");
  return 0;
}
