/* Start-up of a Cortex-M without an operating system. START is what runs after data and bss are set: main, or, where
   newlib's semihosting gives a program stdin and stdout of the emulator, newlib's _start. */
#include <stdint.h>

extern uint32_t data_from[], data_begin[], data_end[], bss_begin[], bss_end[], stack_top[];

#ifdef SEMIHOSTED
extern void _start(void);
#else
extern int main(void);
#endif

/* newlib's _start calls these; there is nothing for them to do. */
void _init(void);
void _fini(void);
void _init(void) {}
void _fini(void) {}

void start(void);

static void halt(void)
{
    for (;;) {
    }
}

void start(void)
{
    const uint32_t *from = data_from;
    uint32_t *to;
    for (to = data_begin; to < data_end; to++) {
        *to = *from++;
    }
    for (to = bss_begin; to < bss_end; to++) {
        *to = 0;
    }
#ifdef SEMIHOSTED
    _start();
#else
    (void)main();
#endif
    halt();
}

union vector {
    void (*code)(void);
    const void *stack;
};

__attribute__((section(".vectors"), used)) static const union vector vectors[16] = {
    {.stack = stack_top}, {start}, {halt}, {halt}, {halt}, {halt}, {halt}, {0},
    {0}, {0}, {0}, {halt}, {halt}, {0}, {halt}, {halt},
};
