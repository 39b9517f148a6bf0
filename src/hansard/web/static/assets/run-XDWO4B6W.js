import{b as r}from"./chunk-6I6ZWNAF.js";import{m18 as e}from"./core-6QM4Z5HL.js";var o=e.default;function u({params:t}){return r(o,{run:t.run})}export{u as default};
