// A network in TensorFlow Lite for Microcontrollers, its reference kernels, and only the ops that the network has.
//
// SIZE: one run, nothing else, so that the file has the size of firmware. Otherwise the arguments are how many runs are
// timed; stdin holds the bytes of one input; stdout gets the bytes of the arena, those of the output, and the
// processor time of a run in microseconds.
#include <cstdint>

#include "tensorflow/lite/micro/micro_interpreter.h"
#include "tensorflow/lite/micro/micro_mutable_op_resolver.h"
#include "tensorflow/lite/schema/schema_generated.h"

#ifndef SIZE
#include <cstdio>
#include <cstdlib>
#include <ctime>
#endif

extern const unsigned char model_data[];

namespace {
alignas(16) uint8_t arena[ARENA];
}

int main(int argc, char **argv)
{
    tflite::MicroMutableOpResolver<8> resolver;
    OPS;
    tflite::MicroInterpreter interpreter(tflite::GetModel(model_data), resolver, arena, sizeof(arena));
    if (interpreter.AllocateTensors() != kTfLiteOk) {
        return 1;
    }
#ifdef SIZE
    (void)argc;
    (void)argv;
    return interpreter.Invoke() == kTfLiteOk ? interpreter.output(0)->data.int8[0] : 1;
#else
    TfLiteTensor *input = interpreter.input(0);
    if (std::fread(input->data.int8, 1, input->bytes, stdin) != input->bytes || interpreter.Invoke() != kTfLiteOk) {
        return 1;
    }
    std::printf("arena %lu\noutput", static_cast<unsigned long>(interpreter.arena_used_bytes()));
    for (size_t i = 0; i < interpreter.output(0)->bytes; i++) {
        std::printf(" %d", interpreter.output(0)->data.int8[i]);
    }
    const int runs = argc > 1 ? std::atoi(argv[1]) : 0;
    const std::clock_t begin = std::clock();
    for (int run = 0; run < runs; run++) {
        if (interpreter.Invoke() != kTfLiteOk) {
            return 1;
        }
    }
    if (runs > 0) {
        std::printf("\nmicroseconds %.3f", 1e6 * static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC / runs);
    }
    std::printf("\n");
    return 0;
#endif
}
